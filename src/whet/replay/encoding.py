"""A table as JSON, in the columns and differences that compress well.

Version 1, all of it in one object whose first two members are `format` and `v`:

- `configs`: the parameters' `names`, the `values` of each, and for each one column with every
  config's position among these values, -1 where a config does without the parameter.
- `space`: the declared parameters and constraints; null where the configs are the space.
- `statuses`: the legend. A column of statuses is a string with one digit a config, its position in
  the legend, and `-` where a config was never tried.
- `builds`: columns by config. Seconds are in units of 0.1 ms, -1 for unknown; `errors` has the
  failed ones by index; a fact is null where a config has none.
- `workloads`: for each its key and columns by config. `visits` has the number of samples in each
  visit; `samples` the samples of one config after the other in nanoseconds, the first as it is and
  the others as differences from that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from whet.core.config import Config
from whet.core.space import read_parameters
from whet.core.status import Status
from whet.replay.table import TICKS_PER_S, Build, Table, TableWorkload
from whet.replay.visits import Visits

FORMAT = "whet-table"
VERSION = 1
UNKNOWN = -1
UNTRIED = "-"


def table_json(table: Table) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "v": VERSION,
        "kernel": table.kernel,
        "fingerprint": table.fingerprint,
        "device": table.device.to_json(),
        "toolchain": _sorted(table.toolchain),
        "origin": asdict(table.origin),
        "space": None if table.declared is None else table.declared.to_json(),
        "configs": _configs_json(table.configs),
        "statuses": [str(status) for status in Status],
        "builds": _builds_json(table.builds),
        "workloads": [_workload_json(workload) for workload in table.workloads],
    }


def _configs_json(configs: Sequence[Config]) -> dict[str, Any]:
    parameters = read_parameters(configs)
    return {
        "names": [parameter.name for parameter in parameters],
        "values": [list(parameter.values) for parameter in parameters],
        "columns": [
            [
                parameter.position(config[parameter.name]) if parameter.name in config else UNKNOWN
                for config in configs
            ]
            for parameter in parameters
        ],
    }


def _builds_json(builds: Sequence[Build]) -> dict[str, Any]:
    stages = sorted({stage for build in builds for stage in build.stages})
    facts = sorted({fact for build in builds for fact in build.facts})
    return {
        "status": _statuses_text([build.status for build in builds]),
        "seconds": [_ticks(build.seconds) for build in builds],
        "stages": {
            stage: [_ticks(build.stages.get(stage)) for build in builds] for stage in stages
        },
        "errors": {str(at): build.error for at, build in enumerate(builds) if build.error},
        "facts": {fact: [build.facts.get(fact) for build in builds] for fact in facts},
    }


def _workload_json(workload: TableWorkload) -> dict[str, Any]:
    return {
        "key": _sorted(workload.key),
        "status": _statuses_text(workload.statuses),
        "visits": _visits_json(workload.visits),
        "samples": _differences(workload.visits),
        "quality": _by_index(workload.qualities),
        "first_ns": list(workload.first),
        "seconds": {phase: list(ticks) for phase, ticks in _sorted(workload.spent).items()},
        "errors": _by_index(workload.errors),
    }


def _visits_json(visits: Visits) -> list[list[int]]:
    sizes = iter(visits.sizes.tolist())
    return [[next(sizes) for _ in range(count)] for count in visits.counts.tolist()]


def _differences(visits: Visits) -> list[int]:
    starts = visits.starts
    first = starts[:-1][visits.counts > 0]
    taken = np.diff(starts)[visits.counts > 0]
    differences = visits.flat - np.repeat(visits.flat[first], taken)
    differences[first] = visits.flat[first]
    listed: list[int] = differences.tolist()
    return listed


def _statuses_text(statuses: Sequence[Status | None]) -> str:
    digits = {status: str(at) for at, status in enumerate(Status)}
    return "".join(UNTRIED if status is None else digits[status] for status in statuses)


def _ticks(seconds: float | None) -> int:
    return UNKNOWN if seconds is None else round(seconds * TICKS_PER_S)


def _by_index(items: Mapping[str, Any]) -> dict[str, Any]:
    return {at: items[at] for at in sorted(items, key=int)}


def _sorted(items: Mapping[str, Any]) -> dict[str, Any]:
    return {name: items[name] for name in sorted(items)}
