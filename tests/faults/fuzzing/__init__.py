"""Hostile input for everything that reads what others wrote: targets, mutations, and the loops."""
