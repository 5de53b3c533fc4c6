"""Missed keys as lines of a bundle, and back with every type checked."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace

from whet.core.miss import Miss
from whet.store.bundles.format import parsed
from whet.store.bundles.records import UNREADABLE, WORKLOAD, portable, unreadable, workload_of
from whet.store.bundles.shapes import COUNT, INTEGER, NAME, NUMBER, PLAIN, MapOf, check, one_of

_PLACEMENT = {"stride": [COUNT], "offset": COUNT, "storage": COUNT, "aligned": COUNT}
_ARGUMENT = {"name": NAME, "type": NAME, "dtype": NAME, "shape": [COUNT], "value": PLAIN}
_RANGE = {"low": INTEGER, "high": INTEGER, "order": one_of("", "rising", "strict")}
_COMPILED = one_of("", "constant", "plain")
_GRID = {"values": MapOf(PLAIN), "size": [COUNT]}
_MISS = {"workload": WORKLOAD, "where": NAME, "arguments": [_ARGUMENT], "at": NUMBER}

_dump = json.JSONEncoder(separators=(",", ":")).encode


def miss_lines(misses: Iterable[Miss]) -> list[str]:
    """Without the folders of this machine; a module's name leads to its file on any."""
    return [
        _dump(
            replace(
                miss, workload=portable(miss.workload), where=os.path.basename(miss.where)
            ).to_json()
        )
        for miss in misses
    ]


def misses_of(data: bytes) -> list[Miss]:
    return [_miss(line) for line in data.splitlines()]


def _miss(line: bytes) -> Miss:
    data = parsed(line, "a missed key")
    check(data, _MISS, "missed")
    for argument in data["arguments"]:
        if "placement" in argument:
            check(argument["placement"], _PLACEMENT, "missed.arguments.placement")
        check(argument.get("ranges", []), [_RANGE], "missed.arguments.ranges")
        check(argument.get("compiled", ""), _COMPILED, "missed.arguments.compiled")
    check(data.get("grids", []), [_GRID], "missed.grids")
    check(data.get("positional", 0), COUNT, "missed.positional")
    check(data.get("module", ""), NAME, "missed.module")
    workload_of(data["workload"])
    try:
        return Miss.from_json(data)
    except UNREADABLE as error:
        raise unreadable("missed key", error) from None
