"""Killable processes: tasks in a pool, and objects that live in a session."""
