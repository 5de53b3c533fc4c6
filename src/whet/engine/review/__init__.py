"""Stored results looked at again: measured anew, or beside another store's."""
