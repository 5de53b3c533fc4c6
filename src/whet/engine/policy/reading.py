"""Reads a policy file; what is wrong with it is one line that names the file and the line."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from whet.core.errors import SettingsError, UsageError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.core.toml import check_keys
from whet.engine.policy.lines import line_of, rule_lines, top_level_line
from whet.engine.policy.parts import NotInParts, PartReader, rule_starts, unreadable_line
from whet.engine.policy.rules import TABLE, Policy, Rule
from whet.engine.policy.values import rule_patterns, rule_values

# 10,000 rules have less than a tenth of it.
MOST_BYTES = 16 * 2**20

_LONGEST = 400

# By what `tomllib` says.
_REMEDIES = {
    "Invalid value": '; put text in quotes: mode = "cached", and write true or false without',
    "Invalid statement": f'; write [[{TABLE}]] and below it lines such as mode = "cached"',
    "Expected '=' after a key": '; write lines such as mode = "cached"',
    "Cannot overwrite a value": "; it is given twice in this rule",
    f"Cannot declare ('{TABLE}',) twice": f"; begin each rule with [[{TABLE}]]",
    f"Cannot mutate immutable namespace ('{TABLE}',)": f"; begin each rule with [[{TABLE}]]",
}


def read_policy(path: Path) -> Policy:
    """Raises `SettingsError`, also where the file is not there."""
    text = policy_text(path, policy_bytes(path))
    return Policy(path, checked_rules(path, text), text)


def checked_rules(path: Path, text: str) -> tuple[Rule, ...]:
    found = rules_in_parts(text)
    return _rules_of_the_whole(path, text) if found is None else found[0]


def rules_in_parts(text: str) -> tuple[tuple[Rule, ...], list[Mapping[str, Any]]] | None:
    """The rules, and of each the settings as they stand there; None where the text has to be read
    as a whole, which also says what is wrong with it."""
    reader = PartReader(rule_patterns, rule_values)
    try:
        check_keys(text)
        parts = [reader.read(text[start:end]) for start, end in pairwise(rule_starts(text))]
    except (NotInParts, UsageError, tomllib.TOMLDecodeError):
        return None
    rules = tuple(Rule(n, patterns, values) for n, (patterns, _, values) in enumerate(parts))
    return rules, [given for _, given, _ in parts]


def _rules_of_the_whole(path: Path, text: str) -> tuple[Rule, ...]:
    try:
        check_keys(text)
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, why = _syntax(str(error), text)
        raise _wrong(path, line, f"not valid TOML: {why}") from None
    except (ValueError, RecursionError) as error:  # past Python's limits
        why = "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
        raise _wrong(path, unreadable_line(text), f"{why}; shorten this rule") from None
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
    except IsADirectoryError:
        raise SettingsError(f"policy file {path} is a folder; name the file in it") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SettingsError(f"cannot read policy file {path}: {why}") from None
    if len(content) > MOST_BYTES:
        most = MOST_BYTES // 2**20
        raise SettingsError(f"policy file {path} is larger than {most} MiB; shorten it")
    return content


def policy_text(path: Path, content: bytes) -> str:
    try:
        # Some editors begin a file with a mark of its encoding.
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _wrong(path, line, "not UTF-8; save the file as UTF-8") from None


def _without_waiting(path: str, flags: int) -> int:
    """It may be a pipe that nobody writes to."""
    return os.open(path, flags | os.O_NONBLOCK)


def _syntax(said: str, text: str) -> tuple[int, str]:
    """`tomllib`'s sentence without its place but with a remedy, and the line of that."""
    found = re.search(r" \(at line (\d+), column \d+\)$", said)
    if found is not None:
        line, why = int(found[1]), said[: found.start()]
    else:
        line = max(1, text.rstrip("\n").count("\n") + 1)
        why = said.removesuffix(" (at end of document)")
    if "\r" in text:
        return line, f"{why}; save the file with \\n at the ends of lines"
    remedies = (remedy for part, remedy in _REMEDIES.items() if part in why)
    return line, why + next(remedies, "")


def _wrong(path: Path, line: int, why: str) -> SettingsError:
    text = why if len(why) <= _LONGEST else f"{why[: _LONGEST // 2]} … {why[-_LONGEST // 2 :]}"
    shown = "".join(one if one.isprintable() else "�" for one in " ".join(text.split()))
    return SettingsError(f"{path}:{line}: {shown}")


def _rule(path: Path, text: str, number: int, given: Mapping[str, Any]) -> Rule:
    def wrong(key: str, why: str) -> SettingsError:
        return _wrong(path, line_of(rule_lines(text, TABLE), number, key), why)

    if "match" not in given:
        raise wrong("", 'the rule has no match; add match = "MODULE:KERNEL"')
    values: dict[str, Any] = {}
    for key, value in given.items():
        try:
            if key == "match":
                patterns = rule_patterns(value)
            else:
                values |= rule_values({key: value})
        except UsageError as error:
            raise wrong(key, str(error)) from None
    return Rule(number, patterns, FrozenMap(values))
