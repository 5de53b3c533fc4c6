"""Reads a policy file; what is wrong with it is one line that names the file and the line.

A kernel's first call waits for this module, so what one setting needs is imported where a rule has
it.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.core.errors import SettingsError, UsageError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.core.toml import check_keys
from whet.engine.policy.rules import BUCKETS, SHARED, TABLE, Pattern, Policy, Rule

if TYPE_CHECKING:
    from whet.core.config import Config

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
    text = _text(path, _content(path))
    rules = tuple(_rules(path, text, _tables(path, text)))
    return Policy(path, rules, text)


def _tables(path: Path, text: str) -> list[dict[str, Any]]:
    """One for each rule."""
    try:
        check_keys(text)
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, why = _syntax(str(error), text)
        raise _wrong(path, line, f"not valid TOML: {why}") from None
    except (ValueError, RecursionError) as error:  # past Python's limits
        why = "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
        raise _wrong(path, _unreadable_line(text), f"{why}; shorten this rule") from None
    for name in table:
        if name != TABLE:
            hint = did_you_mean(name, [f"[[{TABLE}]]"])
            raise _wrong(path, top_level_line(text, name), f"'{name}' is not known{hint}")
    given = table.get(TABLE, [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        line = top_level_line(text, TABLE)
        raise _wrong(path, line, f"'{TABLE}' is not a list of rules; write [[{TABLE}]]")
    return given


def _rules(path: Path, text: str, tables: list[dict[str, Any]]) -> Iterator[Rule]:
    known: dict[tuple[str, str], dict[str, Any]] = {}  # thousands of rules say the same few things
    for number, given in enumerate(tables):
        key = ""
        try:
            if "match" not in given:
                raise UsageError('the rule has no match; add match = "MODULE:KERNEL"')
            values: dict[str, Any] = {}
            for key, value in given.items():
                if key == "match":
                    patterns = _patterns(value)
                    continue
                said = key, repr(value)
                if said not in known:
                    known[said] = _values(key, value)
                values |= known[said]
        except UsageError as error:
            line = line_of(rule_lines(text, TABLE), number, key)
            raise _wrong(path, line, str(error)) from None
        yield Rule(number, patterns, FrozenMap(values))


def _content(path: Path) -> bytes:
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


def _text(path: Path, content: bytes) -> str:
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


def _unreadable_line(text: str) -> int:
    """Where the first rule begins that cannot be read, where nothing else is known of the place."""
    header = re.compile(rf"^[ \t]*\[\[[ \t]*{TABLE}[ \t]*\]\]", re.MULTILINE)
    for start, end in pairwise([0, *(found.start() for found in header.finditer(text)), len(text)]):
        try:
            tomllib.loads(text[start:end])
        except (ValueError, RecursionError):
            return text.count("\n", 0, start) + 1
    return 1


def _wrong(path: Path, line: int, why: str) -> SettingsError:
    text = why if len(why) <= _LONGEST else f"{why[: _LONGEST // 2]} … {why[-_LONGEST // 2 :]}"
    shown = "".join(one if one.isprintable() else "�" for one in " ".join(text.split()))
    return SettingsError(f"{path}:{line}: {shown}")


def _patterns(value: Any) -> tuple[Pattern, ...]:
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


def _values(key: str, value: Any) -> dict[str, Any]:
    """What stands in a rule beside `match`. Raises `UsageError`."""
    if key not in _READERS:
        hint = did_you_mean(key, ["match", *_READERS])
        raise UsageError(f"'{key}' is not a setting of a kernel{hint}")
    return _buckets(value) if key == "buckets" else {key: _READERS[key](value)}


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


# Strings and comments are taken whole, so that brackets and signs in them mean nothing.
_TOKEN = (
    r'"""(?:\\.|[^\\])*?"""+'
    r"|'''.*?'''+"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\[\]{}=\n]"
    r"|[^\[\]{}=\n\"'#]+"
)

Lines = dict[tuple[int, str], int]


def rule_lines(text: str, table: str) -> Lines:
    """Of valid TOML with an array of tables `[[table]]`: the line of each of them, by its number
    and "", and of each of its keys, by its number and the key."""
    found: Lines = {}
    number, inside = -1, False
    for line, header, key in _statements(text):
        parts = _parts(key)
        if not header:
            if inside:
                found.setdefault((number, parts[0]), line)
            elif parts[0] == table:  # written as one array
                found.setdefault((-1, ""), line)
        elif header == "[[" and parts == [table]:
            number, inside = number + 1, True
            found[number, ""] = line
        else:
            inside = False
            if parts[0] == table and len(parts) > 1 and number >= 0:
                found.setdefault((number, parts[1]), line)
    return found


def line_of(lines: Lines, number: int, key: str = "") -> int:
    """Of the key, or where it is not known, of its table."""
    for place in ((number, key), (number, ""), (-1, "")):
        if place in lines:
            return lines[place]
    return 1


def top_level_line(text: str, name: str) -> int:
    for line, _, key in _statements(text):
        if _parts(key)[0] == name:
            return line
    return 1


def _statements(text: str) -> Iterator[tuple[int, str, str]]:
    """The line, `[` or `[[` for a header, and the dotted key of each."""
    line, depth, start = 1, 0, 1
    before = ""  # of the statement, up to its `=`
    past_key = False
    for match in re.finditer(_TOKEN, text, re.DOTALL):
        token = match[0]
        if token == "\n" and depth == 0:
            yield from _statement(start, before)
            before, past_key, start = "", False, line + 1
        elif not token.startswith("#") and not past_key:
            header = before.lstrip().startswith("[") or (token == "[" and not before.strip())
            if token == "=" and not header:
                past_key = True
            else:
                before += token
        elif token in ("[", "{"):
            depth += 1
        elif token in ("]", "}"):
            depth -= 1
        line += token.count("\n")
    yield from _statement(start, before)


def _statement(line: int, before: str) -> Iterator[tuple[int, str, str]]:
    key = before.strip()
    if key:
        header = "[[" if key.startswith("[[") else key[0] if key.startswith("[") else ""
        yield line, header, key.strip("[]").strip()


def _parts(key: str) -> list[str]:
    """`buckets."T"` as `["buckets", "T"]`."""
    found = re.findall(r'"((?:\\.|[^"\\])*)"|\'([^\']*)\'|([^.\s"\']+)', key)
    return ["".join(part) for part in found] or [""]
