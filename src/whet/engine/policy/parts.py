"""A policy's text in parts, one for each rule, each of which can be read alone.

A file of thousands of rules says the same few things about many kernels: what stands below `match`
is parsed and checked once, however often it stands there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from whet.core.frozen import FrozenMap
from whet.engine.policy.rules import TABLE, Pattern

_HEADER = re.compile(rf"^[ \t]*\[\[[ \t]*{TABLE}[ \t]*\]\]", re.MULTILINE)

# The usual way to begin a rule: a string in which every character stands for itself.
_BEGINNING = re.compile(rf'\[\[{TABLE}\]\]\nmatch = "([^"\\\x00-\x1f\x7f]*)"\n')

Patterns = tuple[Pattern, ...]


class NotInParts(Exception):
    """The text has to be read as a whole, which also says what is wrong with it."""


def rule_starts(text: str) -> list[int]:
    """Where each rule begins, and where the last one ends.

    A header inside a string or a list that spans lines cuts it in two, and what comes before is
    then no valid TOML: whoever reads every part alone finds out.
    """
    starts = [found.start() for found in _HEADER.finditer(text)]
    if not starts or _parsed(text[: starts[0]]):  # which may be comments
        raise NotInParts
    return [*starts, len(text)]


def unreadable_line(text: str) -> int:
    """Where the first rule begins that cannot be read, where nothing else is known of the place."""
    starts = [found.start() for found in _HEADER.finditer(text)]
    for start, end in pairwise([0, *starts, len(text)]):
        try:
            _parsed(text[start:end])
        except NotInParts:
            return text.count("\n", 0, start) + 1
    return 1


class PartReader:
    """`patterns` is made of what `match` says, `values` of all that stands beside it."""

    def __init__(
        self,
        patterns: Callable[[Any], Patterns],
        values: Callable[[Mapping[str, Any]], FrozenMap[Any]],
    ) -> None:
        self._patterns, self._values = patterns, values
        self._known: dict[str, tuple[Any, dict[str, Any], FrozenMap[Any]]] = {}

    def read(self, part: str) -> tuple[Patterns, Mapping[str, Any], FrozenMap[Any]]:
        """Of the one rule that stands there; raises `NotInParts` where that is not so. Its settings
        are as they were given and as they were understood, the same objects where the same stands.
        """
        part = part.rstrip(" \t\n")
        beginning = _BEGINNING.match(part)
        rest = part if beginning is None else f"[[{TABLE}]]\n{part[beginning.end() :]}"
        known = self._known.get(rest)
        if known is None:
            given = _one_rule(rest)
            match = given.pop("match", None)
            known = self._known[rest] = match, given, self._values(given)
        if (known[0] is None) == (beginning is None):  # there must be exactly one
            raise NotInParts
        match, given, values = known
        return self._patterns(match if beginning is None else beginning[1]), given, values


def _one_rule(part: str) -> dict[str, Any]:
    table = _parsed(part)
    given = table.get(TABLE)
    if len(table) != 1 or not isinstance(given, list) or len(given) != 1:
        raise NotInParts
    return dict(given[0])


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        raise NotInParts from None
