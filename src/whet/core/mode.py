"""`Mode`: whether a kernel may be tuned when it is called."""

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
