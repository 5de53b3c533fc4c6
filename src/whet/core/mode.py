"""`Mode`: whether a kernel may be tuned when it is called; `Effort`: whether a tuning tries
everything, or stops when the rest is not expected to pay."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

from whet.core.errors import UsageError, did_you_mean

Mode = Literal["tune", "cached", "require", "off", "record"]

MODES: tuple[Mode, ...] = get_args(Mode)


def checked_mode(value: Any) -> Mode:
    """`value`, if it is a mode; anything else is a `UsageError` that lists them."""
    if value not in MODES:
        raise UsageError(f"mode {value!r} is not valid{did_you_mean(str(value), MODES)}")
    return cast(Mode, value)


Effort = Literal["full", "quick"]

EFFORTS: tuple[Effort, ...] = get_args(Effort)


def checked_effort(value: Any) -> Effort:
    """The effort that a text names; anything else is a `UsageError`."""
    text = value.strip().lower() if isinstance(value, str) else str(value)
    if text not in EFFORTS:
        raise UsageError(f"effort {value!r} is not valid{did_you_mean(text, EFFORTS)}")
    return text
