"""A policy's text in parts, one for each rule, each of which can be read alone.

A file of thousands of rules says the same few things about many kernels: what stands below `match`
is parsed and checked once, however often it stands there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from whet.engine.policy.rules import TABLE

_HEADER = re.compile(rf"^[ \t]*\[\[[ \t]*{TABLE}[ \t]*\]\]", re.MULTILINE)

# The usual way to begin a rule: a string in which every character stands for itself.
_BEGINNING = re.compile(rf'\[\[{TABLE}\]\]\nmatch = "([^"\\\x00-\x1f\x7f]*)"\n')


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


def read_part(part: str) -> Mapping[str, Any]:
    """The one rule that stands there."""
    table = _parsed(part)
    given = table.get(TABLE)
    if len(table) != 1 or not isinstance(given, list) or len(given) != 1:
        raise NotInParts
    only: Mapping[str, Any] = given[0]
    return only


def read_parts(
    text: str,
    starts: Sequence[int],
    patterns: Callable[[Any], Any],
    values: Callable[[Mapping[str, Any]], Any],
) -> list[tuple[Any, Any]]:
    """What `patterns` makes of each `match`, and `values` of all that stands beside it."""
    found, known = [], {}
    for start, end in pairwise(starts):
        part = text[start:end].rstrip(" \t\n")
        beginning = _BEGINNING.match(part)
        rest = part if beginning is None else f"[[{TABLE}]]\n{part[beginning.end() :]}"
        if rest not in known:
            table = dict(read_part(rest))
            given = table.pop("match", None)
            known[rest] = given, values(table)
        given, checked = known[rest]
        if (given is None) == (beginning is None):  # there must be exactly one
            raise NotInParts
        found.append((patterns(given if beginning is None else beginning[1]), checked))
    return found


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        raise NotInParts from None
