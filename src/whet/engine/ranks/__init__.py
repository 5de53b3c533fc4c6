"""Ranks and processes that agree on one choice."""
