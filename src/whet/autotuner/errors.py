"""What this room says to a caller whose arguments cannot be."""

from __future__ import annotations

from whet.core.errors import TuningFailedError, UsageError


class ArgumentError(UsageError, ValueError):
    """A `UsageError` that code which knows nothing of whet can catch as a `ValueError`."""


class EmptySpaceError(ArgumentError, TuningFailedError):
    """Nothing to choose from: said early, and the same failure as when no config works."""

    exit_code = 1
