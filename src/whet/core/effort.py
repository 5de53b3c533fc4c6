"""`Effort`: whether a tuning tries everything, or stops when the rest is not expected to pay."""

from __future__ import annotations

from typing import Any, Literal, get_args

from whet.core.errors import UsageError, did_you_mean

Effort = Literal["full", "quick"]

EFFORTS: tuple[Effort, ...] = get_args(Effort)


def checked_effort(value: Any) -> Effort:
    """The effort that a text names; anything else is a `UsageError`."""
    text = value.strip().lower() if isinstance(value, str) else str(value)
    if text not in EFFORTS:
        raise UsageError(f"effort {value!r} is not valid{did_you_mean(text, EFFORTS)}")
    return text
