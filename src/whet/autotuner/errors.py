"""What this room says to a caller whose arguments cannot be."""

from __future__ import annotations

from whet.core.errors import UsageError


class ArgumentError(UsageError, ValueError):
    """A `UsageError` that code which knows nothing of whet can catch as a `ValueError`."""
