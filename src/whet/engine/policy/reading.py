"""Reads a policy file; what is wrong with it is one line that names the file and the line."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from whet.core.buckets import Buckets
from whet.core.config import Config
from whet.core.errors import SettingsError, UsageError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.engine.policy.lines import line_of, rule_lines, top_level_line
from whet.engine.policy.parts import NotInParts, PartReader, rule_starts
from whet.engine.policy.rules import TABLE, Pattern, Policy, Rule
from whet.engine.settings import parse_setting
from whet.measure.bench.bits import BIT_CHECKS

# 10,000 rules have less than a tenth of it.
MOST_BYTES = 16 * 2**20

_LONGEST = 400

# Settings that mean for one kernel what they mean for all.
SHARED: tuple[str, ...] = (
    "mode",
    "effort",
    "budget",
    "isolate",
    "l2",
    "l2_bytes",
    "build_limit",
    "run_limit",
    "memory",
    "device_memory",
)


# What the bucket of a key argument is called among a rule's values.
BUCKETS = "buckets."


def read_policy(path: Path) -> Policy:
    """Raises `SettingsError`, also where the file is not there."""
    text = policy_text(path, policy_bytes(path))
    return Policy(path, checked_rules(path, text), text)


def checked_rules(path: Path, text: str) -> tuple[Rule, ...]:
    found = rules_in_parts(text)
    return _rules_of_the_whole(path, text) if found is None else found[1]


def rules_in_parts(text: str) -> tuple[list[int], tuple[Rule, ...]] | None:
    """Where each rule begins and the last one ends, and the rules; None where the text has to be
    read as a whole, which also says what is wrong with it."""
    reader = part_reader()
    try:
        starts = rule_starts(text)
        found = [reader.read(text[start:end]) for start, end in pairwise(starts)]
    except (NotInParts, UsageError):
        return None
    return starts, tuple(Rule(n, patterns, values) for n, (patterns, values) in enumerate(found))


def part_reader() -> PartReader:
    return PartReader(_patterns, _values)


def _rules_of_the_whole(path: Path, text: str) -> tuple[Rule, ...]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, why = _syntax(str(error), text)
        raise _wrong(path, line, f"not valid TOML: {why}") from None
    except (ValueError, RecursionError) as error:  # a number or a nesting past Python's limits
        raise _wrong(path, 1, f"not valid TOML: {error}") from None
    for name in table:
        if name != TABLE:
            hint = did_you_mean(name, [f"[[{TABLE}]]"])
            raise _wrong(path, top_level_line(text, name), f"'{name}' is not known{hint}")
    given = table.get(TABLE, [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        line = top_level_line(text, TABLE)
        raise _wrong(path, line, f"'{TABLE}' is not a list of rules; write [[{TABLE}]]")
    return tuple(_rule(path, text, n, one) for n, one in enumerate(given))


def policy_bytes(path: Path) -> bytes:
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise SettingsError(f"policy file {path} is not a file; give a TOML file")
            # Room for all that it may be takes longer to get than the content.
            content = file.read(min(about.st_size, MOST_BYTES) + 1)
            if len(content) > about.st_size:
                content += file.read(MOST_BYTES + 1 - len(content))
    except FileNotFoundError:
        raise SettingsError(f"policy file {path} does not exist") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SettingsError(f"cannot read policy file {path}: {why}") from None
    if len(content) > MOST_BYTES:
        most = MOST_BYTES // 2**20
        raise SettingsError(f"policy file {path} is larger than {most} MiB; shorten it")
    return content


def policy_text(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _wrong(path, line, "not UTF-8; save the file as UTF-8") from None


def _without_waiting(path: str, flags: int) -> int:
    """It may be a pipe that nobody writes to."""
    return os.open(path, flags | os.O_NONBLOCK)


def _syntax(said: str, text: str) -> tuple[int, str]:
    """`tomllib`'s sentence without its place, and the line of that."""
    found = re.search(r" \(at line (\d+), column \d+\)$", said)
    if found is not None:
        return int(found[1]), said[: found.start()]
    return max(1, text.rstrip("\n").count("\n") + 1), said.removesuffix(" (at end of document)")


def _wrong(path: Path, line: int, why: str) -> SettingsError:
    text = why if len(why) <= _LONGEST else f"{why[: _LONGEST // 2]} … {why[-_LONGEST // 2 :]}"
    return SettingsError(f"{path}:{line}: {' '.join(text.split())}")


def _rule(path: Path, text: str, number: int, given: Mapping[str, Any]) -> Rule:
    def wrong(key: str, why: str) -> SettingsError:
        return _wrong(path, line_of(rule_lines(text, TABLE), number, key), why)

    if "match" not in given:
        raise wrong("", 'the rule has no match; add match = "MODULE:KERNEL"')
    values: dict[str, Any] = {}
    for key, value in given.items():
        try:
            if key == "match":
                patterns = _patterns(value)
            else:
                values |= _values({key: value})
        except UsageError as error:
            raise wrong(key, str(error)) from None
    return Rule(number, patterns, FrozenMap(values))


def _values(given: Mapping[str, Any]) -> FrozenMap[Any]:
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


def _patterns(value: Any) -> tuple[Pattern, ...]:
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


def _buckets(value: Any) -> dict[str, Any]:
    """Each argument is a setting by itself, None where it has no buckets."""
    if not isinstance(value, dict) or not value:
        raise UsageError(f'buckets = {value!r} is not valid; use {{ T = "pow2" }}')
    given = {name: bucket for name, bucket in value.items() if bucket != "none"}
    checked = Buckets.of(given, given).by_name
    return {f"{BUCKETS}{name}": checked.get(name) for name in value}


def _check(value: Any) -> str | None:
    names = ("agree", *BIT_CHECKS)
    if value in (*names, "none", False):
        return value if value in names else None
    valid = ", ".join(f'"{name}"' for name in names)
    raise UsageError(f'check = {value!r} is not valid; use {valid} or "none"')


def _configs(key: str) -> Callable[[Any], tuple[Config, ...]]:
    def read(value: Any) -> tuple[Config, ...]:
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
    return lambda value: parse_setting(name, value)


_READERS: dict[str, Callable[[Any], Any]] = {
    **{name: _shared(name) for name in SHARED},
    "buckets": _buckets,
    "check": _check,
    "add": _configs("add"),
    "leave_out": _configs("leave_out"),
}

RULE_SETTINGS: tuple[str, ...] = tuple(_READERS)
