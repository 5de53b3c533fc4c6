"""Calls that may not wait for a tuning."""
