"""`Mode`: whether a kernel may be tuned when it is called."""

from __future__ import annotations

from typing import Any, Literal, get_args

from whet.core.errors import UsageError, did_you_mean

Mode = Literal["tune", "cached", "require", "off", "record"]

MODES: tuple[Mode, ...] = get_args(Mode)


def checked_mode(value: Any, what: str = "mode") -> Mode:
    """The mode that a text names; anything else is a `UsageError` that lists them."""
    text = value.strip().lower() if isinstance(value, str) else str(value)
    if text not in MODES:
        raise UsageError(f"{what} {value!r} is not valid{did_you_mean(text, MODES)}")
    return text
