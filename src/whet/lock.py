"""Choices written down: one hash of all that are in force, and those that no lock file made."""

from whet.engine.lockfile.choosing import digest
from whet.engine.lockfile.in_force import unlocked

__all__ = ["digest", "unlocked"]
