"""The lock file: choices written down, so that every process makes the same ones.

Why it is so: docs/decisions/lock-file.md.
"""
