"""Configs measured in a process of their own, which gets binaries and copies of the arguments."""
