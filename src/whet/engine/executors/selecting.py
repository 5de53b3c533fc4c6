"""From what was typed to the devices that are meant."""

from __future__ import annotations

from collections.abc import Sequence

from whet.core.errors import UsageError


def selected(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """`all`, or names such as `0,2,3`, of those that are known. Raises `UsageError`."""
    if text.strip() == "all":
        if not known:
            raise UsageError("--devices all: no GPU found on this machine")
        return tuple(known)
    wanted = [part.strip() for part in text.split(",")]
    if not all(wanted):
        raise UsageError(f"--devices '{text}' is not valid; use all, or numbers such as 0,1")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        there = f"this machine has {', '.join(known)}" if known else "this machine has no GPU"
        raise UsageError(f"--devices: no device {unknown[0]}; {there}")
    if len(set(wanted)) < len(wanted):
        raise UsageError(f"--devices '{text}' names a device twice")
    return tuple(wanted)
