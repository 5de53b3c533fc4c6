"""What a rule says, checked: its patterns and its settings.

A kernel's first call waits for this module, so what one setting needs is imported where a rule has
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from whet.core.errors import UsageError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.engine.policy.rules import BUCKETS, SHARED, Pattern

if TYPE_CHECKING:
    from whet.core.config import Config


def rule_patterns(value: Any) -> tuple[Pattern, ...]:
    """Of what `match` says. Raises `UsageError`."""
    given = [value] if isinstance(value, str) else value
    try:
        if not isinstance(given, list) or not given:
            raise ValueError
        return tuple(Pattern.parse(one) for one in given)
    except (ValueError, AttributeError):
        raise UsageError(
            f'match = {value!r} is not valid; use "KERNEL" or "MODULE:KERNEL", with * for any '
            "characters, or a list of these"
        ) from None


def rule_values(given: Mapping[str, Any]) -> FrozenMap[Any]:
    """What stands in a rule beside `match`. Raises `UsageError` for the first that is wrong."""
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in _READERS:
            hint = did_you_mean(key, ["match", *_READERS])
            raise UsageError(f"'{key}' is not a setting of a kernel{hint}")
        if key == "buckets":
            values.update(_buckets(value))
        else:
            values[key] = _READERS[key](value)
    return FrozenMap(values)


def _buckets(value: Any) -> dict[str, Any]:
    """Each argument is a setting by itself, None where it has no buckets."""
    from whet.core.buckets import Buckets

    if not isinstance(value, dict) or not value:
        raise UsageError(f'buckets = {value!r} is not valid; use {{ T = "pow2" }}')
    given = {name: bucket for name, bucket in value.items() if bucket != "none"}
    checked = Buckets.of(given, given).by_name
    return {f"{BUCKETS}{name}": checked.get(name) for name in value}


def _check(value: Any) -> str | None:
    if value in ("none", False):
        return None
    if value == "agree":
        return "agree"
    from whet.measure.bench.bits import BIT_CHECKS

    if value in BIT_CHECKS:
        return str(value)
    valid = ", ".join(f'"{name}"' for name in ("agree", *BIT_CHECKS))
    raise UsageError(f'check = {value!r} is not valid; use {valid} or "none"')


def _configs(key: str) -> Callable[[Any], tuple[Config, ...]]:
    def read(value: Any) -> tuple[Config, ...]:
        from whet.core.config import Config

        entries = value if isinstance(value, list) else [None]
        if not all(isinstance(one, dict) and one and _are_plain(one) for one in entries):
            raise UsageError(
                f"{key} = {value!r} is not valid; use a list of configs, such as "
                f"{key} = [{{ BLOCK = 64, num_warps = 4 }}]"
            )
        return tuple(map(Config, entries))

    return read


def _are_plain(values: Mapping[str, Any]) -> bool:
    return all(isinstance(value, bool | int | float | str) for value in values.values())


def _shared(name: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        from whet.engine.settings import parse_setting

        return parse_setting(name, value)

    return read


_READERS: dict[str, Callable[[Any], Any]] = {
    **{name: _shared(name) for name in SHARED},
    "buckets": _buckets,
    "check": _check,
    "add": _configs("add"),
    "leave_out": _configs("leave_out"),
}

RULE_SETTINGS: tuple[str, ...] = tuple(_READERS)
