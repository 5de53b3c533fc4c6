"""Workloads by what they were built with."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from whet.core.workload import Workload


def matches(version: str, asked: str) -> bool:
    """`3.5` is 3.5 and 3.5.1, and neither 3.50 nor 13.5; `gcc` is any gcc."""
    return re.search(rf"(?<![\w.]){re.escape(asked)}(?!\w)", version) is not None


def built_with(workload: Workload, chosen: Mapping[str, Collection[str]]) -> bool:
    """True where one of its tools is of a version that is among the chosen."""
    return any(version in chosen.get(tool, ()) for tool, version in workload.toolchain.items())


def versions(workloads: Iterable[Workload]) -> dict[str, tuple[str, ...]]:
    """Every version of every tool that something was built with, the oldest first."""
    found: dict[str, set[str]] = {}
    for workload in workloads:
        for tool, version in workload.toolchain.items():
            found.setdefault(tool, set()).add(version)
    return {tool: tuple(sorted(some, key=_order)) for tool, some in sorted(found.items())}


def current(known: Mapping[str, Collection[str]], here: Mapping[str, str]) -> dict[str, set[str]]:
    """The versions that are not outdated: `here`'s, and the newest known of each make.

    `{"cc": ["gcc 11", "gcc 12", "clang 14"]}` keeps the last two.
    """
    kept: dict[str, set[str]] = {}
    for tool, some in known.items():
        newest = {_make(version): version for version in sorted(some, key=_order)}
        kept[tool] = {*newest.values(), *([here[tool]] if tool in here else [])}
    return kept


def _make(version: str) -> str:
    """What comes before the number: `gcc (Debian ` of `gcc (Debian 12.2.0-14) 12.2.0`."""
    return re.split(r"\d", version, maxsplit=1)[0]


def _order(version: str) -> tuple[str, tuple[int, ...], str]:
    return _make(version), tuple(map(int, re.findall(r"\d+", version))), version
