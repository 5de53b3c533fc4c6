"""Workloads, runs, trials and missed keys as lines of a bundle, and back with every type checked.

In `store*.jsonl` a workload is one line that says how many runs and trials follow it, a line
each, so that a reader can pass over workloads it was not asked for. In `index-*.jsonl` a
workload is a line with its counts, and with the trials its best is contested with if there are
any, and a line with its best trial, or null.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from whet.core.lazy import cached_property
from whet.core.miss import Miss
from whet.core.run import Run
from whet.core.status import LimitKind, Status
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.bundles.archive import (
    BOOLEAN,
    COUNT,
    INTEGER,
    NAME,
    NUMBER,
    PLAIN,
    SAMPLE,
    TEXT,
    MapOf,
    Maybe,
    check,
    one_of,
    parsed,
)
from whet.store.picking import picked
from whet.store.protocol import Pick, WorkloadSummary
from whet.store.rows import UNREADABLE, storable

WORKLOAD = {
    "kernel": NAME,
    "fingerprint": TEXT,
    "key": MapOf(PLAIN),
    "toolchain": MapOf(TEXT),
    "device": {
        "name": NAME,
        "vendor": NAME,
        "architecture": NAME,
        "driver": NAME,
        "limits": MapOf(Maybe(COUNT)),
    },
}
_ORIGIN = {"code": NAME, "captured": MapOf(NAME), "places": [NAME]}
_COST = {"work_s": MapOf(NUMBER), "wall_s": MapOf(NUMBER)}
_TIMING = {
    "samples_ns": [SAMPLE],
    "timer": TEXT,
    "loops": COUNT,
    "l2": one_of("none", "warm", "cold"),
    "quality": one_of("clean", "contaminated", "host_bound"),
    "discarded": COUNT,
}
_FOREIGN = {"median_ns": SAMPLE, "low_ns": SAMPLE, "high_ns": SAMPLE, "source": TEXT}
_LIMIT = {"kind": one_of(*get_args(LimitKind)), "value": NUMBER}
_TRIAL = {
    "id": NAME,
    "workload": NAME,
    "run": NAME,
    "config": MapOf(PLAIN),
    "status": TEXT,
    "timing": Maybe(_TIMING),
    "cost": _COST,
    "facts": MapOf(PLAIN),
    "error": TEXT,
    "limit": Maybe(_LIMIT),
    "created": NUMBER,
}
_RUN = {
    "id": NAME,
    "space": {"id": TEXT, "size": Maybe(COUNT)},
    "search": TEXT,
    "seed": INTEGER,
    "budget": {"seconds": Maybe(NUMBER), "trials": Maybe(COUNT)},
    "outcome": TEXT,
    "exhaustive": BOOLEAN,
    "first": Maybe(MapOf(PLAIN)),
    "best": Maybe(MapOf(PLAIN)),
    "equals": [MapOf(PLAIN)],
    "trials": COUNT,
    "cost": _COST,
    "started": NUMBER,
    "wall_s": NUMBER,
    "whet": TEXT,
}
_HEADER = {"id": NAME, "workload": WORKLOAD, "standing": [COUNT], "runs": COUNT, "trials": COUNT}
_SUMMARY = {"workload": WORKLOAD, "trials": COUNT, "configs": COUNT, "ok": COUNT, "active": NUMBER}

_dump = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True)
class Group:
    """What a bundle holds of one workload. `standing` are the trials that are their config's
    latest, in order of the configs' first appearance; `runs` are in the order they started."""

    workload: Workload
    trials: tuple[Trial, ...]
    standing: tuple[Trial, ...]
    runs: tuple[Run, ...]

    @cached_property
    def latest(self) -> dict[str, Trial]:
        """By config."""
        return {trial.config.id: trial for trial in self.standing}

    @cached_property
    def newest_runs(self) -> list[Run]:
        return sorted(self.runs, key=lambda run: run.started)[::-1]

    @cached_property
    def pick(self) -> Pick | None:
        return picked(self.newest_runs, self.trials, self.latest)

    def summary(self) -> WorkloadSummary:
        moments = [trial.created for trial in self.trials] + [run.ended for run in self.runs]
        pick = self.pick
        return WorkloadSummary(
            workload=self.workload,
            trials=len(self.trials),
            configs=len(self.standing),
            ok=sum(trial.status is Status.OK for trial in self.standing),
            active=max(moments, default=0.0),
            best=None if pick is None else pick.trial,
            rivals=() if pick is None else pick.rivals,
        )


def group_lines(group: Group) -> list[str]:
    places = {trial.id: place for place, trial in enumerate(group.trials)}
    header = {
        "id": group.workload.id,
        "workload": portable(group.workload).to_json(),
        "standing": [places[trial.id] for trial in group.standing],
        "runs": len(group.runs),
        "trials": len(group.trials),
    }
    return [
        _dump(header),
        *(_dump({**run.to_json(), "workload": None, "writer": ""}) for run in group.runs),
        *(_dump(_trial_json(trial)) for trial in group.trials),
    ]


def summary_lines(summary: WorkloadSummary) -> list[str]:
    counts = {name: getattr(summary, name) for name in ("trials", "configs", "ok", "active")}
    best, rivals = summary.best, [_trial_json(rival) for rival in summary.rivals]
    contested = {"rivals": rivals} if rivals else {}
    return [
        _dump({"workload": portable(summary.workload).to_json(), **counts, **contested}),
        "null" if best is None else _dump(_trial_json(best)),
    ]


def portable(workload: Workload) -> Workload:
    return replace(workload, origin=workload.origin.portable())


def _trial_json(trial: Trial) -> dict[str, Any]:
    """As `Trial.to_json`, without what is derived: a timing without samples has no median."""
    timing, limit = trial.timing, trial.limit
    return {
        "v": 1,
        "id": trial.id,
        "workload": trial.workload_id,
        "run": trial.run_id,
        "config": dict(trial.config),
        "status": str(trial.status),
        "timing": None if timing is None else timing.to_json(),
        "cost": trial.cost.to_json(),
        "facts": dict(trial.facts),
        "error": storable(trial.error),
        "limit": None if limit is None else limit.to_json(),
        "created": trial.created,
    }


@dataclass(frozen=True)
class Lines:
    """One workload's lines, not read yet but for the first."""

    header: dict[str, Any]
    runs: Sequence[bytes]
    trials: Sequence[bytes]

    def read_runs(self) -> list[Run]:
        workload = workload_of(self.header["workload"])
        return [_run_of(line, workload) for line in self.runs]

    def group(self) -> Group:
        """Raises ValueError for anything that is not as `group_lines` writes it."""
        workload = workload_of(self.header["workload"])
        if workload.id != self.header["id"]:
            raise ValueError(f"workload {workload.id} is stored under another id")
        trials = tuple(trial_of(line, workload.id) for line in self.trials)
        standing = self.header["standing"]
        if any(place >= len(trials) for place in standing):
            raise ValueError(f"workload {workload.id} has no such trial")
        latest = tuple(trials[place] for place in standing)
        configs = {trial.config.id for trial in latest}
        if len(configs) != len(latest) or configs != {trial.config.id for trial in trials}:
            raise ValueError(
                f"workload {workload.id} does not have exactly one latest trial per config"
            )
        if len({trial.id for trial in trials}) != len(trials):
            raise ValueError(f"a trial of workload {workload.id} appears twice")
        return Group(workload, trials, latest, tuple(self.read_runs()))


def divided(data: bytes) -> Iterator[tuple[str, Lines]]:
    """The workloads of a `store*.jsonl` by their ids."""
    lines = data.splitlines()
    at = 0
    while at < len(lines):
        header = parsed(lines[at], "a workload's line")
        check(header, _HEADER, "workload")
        runs_end = at + 1 + header["runs"]
        end = runs_end + header["trials"]
        if end > len(lines):
            raise ValueError(f"the lines of workload {header['id']} are missing")
        yield header["id"], Lines(header, lines[at + 1 : runs_end], lines[runs_end:end])
        at = end


@dataclass(frozen=True)
class IndexLine:
    """A workload's summary; its trials are read when asked for."""

    workload: Workload
    counts: dict[str, Any]
    best: bytes
    rivals: tuple[Any, ...] = ()

    def summary(self) -> WorkloadSummary:
        best = None if self.best == b"null" else trial_of(self.best, self.workload.id)
        rivals = tuple(_trial(data, self.workload.id) for data in self.rivals)
        return WorkloadSummary(self.workload, **self.counts, best=best, rivals=rivals)


def indexed(data: bytes) -> Iterator[IndexLine]:
    lines = data.splitlines()
    if len(lines) % 2:
        raise ValueError("a line of the index is missing")
    for line, best in zip(lines[::2], lines[1::2], strict=True):
        found = parsed(line, "a line of the index")
        check(found, _SUMMARY, "summary")
        rivals = found.get("rivals", [])
        check(rivals, [_TRIAL], "summary.rivals")
        counts = {name: found[name] for name in ("trials", "configs", "ok", "active")}
        yield IndexLine(workload_of(found["workload"]), counts, best, tuple(rivals))


def workload_of(data: Any) -> Workload:
    try:
        if "origin" in data:
            check(data["origin"], _ORIGIN, "workload.origin")
        return Workload.from_json(data)
    except UNREADABLE as error:
        raise unreadable("workload", error) from None


def trial_of(line: bytes, workload_id: str) -> Trial:
    return _trial(parsed(line, "a trial"), workload_id)


def _trial(data: Any, workload_id: str) -> Trial:
    check(data, _TRIAL, "trial")
    timing = data["timing"]
    if timing is not None and timing.get("foreign") is not None:
        check(timing["foreign"], _FOREIGN, "trial.timing.foreign")
    if data["workload"] != workload_id:
        raise ValueError(f"{workload_id} contains a trial of another workload")
    try:
        trial = Trial.from_json(data)
        trial.config.id  # noqa: B018 - a config that has none is no config
    except UNREADABLE as error:
        raise unreadable("trial", error) from None
    return trial


def _run_of(line: bytes, workload: Workload) -> Run:
    data = parsed(line, "a run")
    check(data, _RUN, "run")
    try:
        return Run.from_json({**data, "workload": workload.to_json()})
    except UNREADABLE as error:
        raise unreadable("run", error) from None


def unreadable(what: str, error: Exception) -> ValueError:
    return ValueError(f"a {what} is not valid ({type(error).__name__}: {error})")


def joined(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


_PLACEMENT = {"stride": [COUNT], "offset": COUNT, "storage": COUNT, "aligned": COUNT}
_ARGUMENT = {"name": NAME, "type": NAME, "dtype": NAME, "shape": [COUNT], "value": PLAIN}
_RANGE = {"low": INTEGER, "high": INTEGER, "order": one_of("", "rising", "strict")}
_COMPILED = one_of("", "constant", "plain")
_GRID = {"values": MapOf(PLAIN), "size": [COUNT]}
_MISS = {"workload": WORKLOAD, "where": NAME, "arguments": [_ARGUMENT], "at": NUMBER}


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
