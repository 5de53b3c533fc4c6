"""A table from the stores of the runs that measured it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from whet._version import __version__
from whet.core.config import Config, Value
from whet.core.errors import UsageError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Quality
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.replay.table import Build, Declared, Table, TableOrigin, TableOutcome, TableWorkload
from whet.store import StoreReader

_BEST_FIRST: tuple[Quality, ...] = ("clean", "contaminated", "host_bound")
_PHASES = ("load", "first_call", "check", "warmup", "warmup.kernel", "measure", "measure.kernel")
_UNBUILT = (Status.CONSTRAINT, Status.RESOURCES, Status.BUILD_ERROR, Status.BUILD_TIMEOUT)
_STAGE = "build."
# Of a larger space the order is not worth the time it takes to go through it.
_ENUMERABLE = 1_000_000


def table_from_stores(
    stores: Sequence[StoreReader],
    *,
    kernel: str | None = None,
    workloads: Iterable[Workload] | None = None,
    space: Space | None = None,
) -> Table:
    """All that the stores know of one kernel, as built by one toolchain for one device.

    Each store is one visit: samples that two of them have of the same config and key stay apart,
    and where one of them timed a config less cleanly than another, only the cleanest are kept.
    Seconds of a build come from the trial that really built, wherever that is. With `space`, its
    configs only and in its order, else in the order in which they first appeared; `workloads` say
    which and in which order, else all of them by their keys. Trials of different kernels, or timed
    in different ways, are refused with a `UsageError`.
    """
    chosen = _one_kernel(_chosen(stores, kernel, workloads))
    records = [_Record.of(workload, stores) for workload in chosen]
    records = [record for record in records if record.history]
    if not records:
        raise UsageError(f"no trials of '{chosen[0].kernel}' in {_named(stores)}; tune it first")
    configs = _configs(records, space)
    if not configs:
        raise UsageError(f"no config of {space!r} has been tried in {_named(stores)}")
    head = records[0].workload
    return Table(
        kernel=head.kernel,
        fingerprint=head.fingerprint,
        device=head.device,
        configs=configs,
        builds=_builds(configs, records),
        workloads=tuple(
            TableWorkload.of(
                record.workload.key, [_outcome(record.visits.get(one, ())) for one in configs]
            )
            for record in records
        ),
        toolchain=head.toolchain,
        origin=_origin(stores, records),
        declared=None if space is None else Declared.of(space),
    )


@dataclass(frozen=True)
class _Record:
    """What all stores know of one workload: by config the latest trial of each store that has one,
    and every trial there ever was."""

    workload: Workload
    visits: Mapping[Config, Sequence[Trial]]
    history: Sequence[Trial]

    @classmethod
    def of(cls, workload: Workload, stores: Iterable[StoreReader]) -> _Record:
        visits: dict[Config, list[Trial]] = {}
        history: list[Trial] = []
        for store in stores:
            for trial in store.trials(workload.id):
                visits.setdefault(trial.config, []).append(trial)
            history += store.trials(workload.id, all=True)
        return cls(workload, visits, history)


def _chosen(
    stores: Sequence[StoreReader], kernel: str | None, workloads: Iterable[Workload] | None
) -> list[Workload]:
    if workloads is not None:
        listed = list({workload.id: workload for workload in workloads}.values())
    else:
        known = {one.workload.id: one.workload for store in stores for one in store.workloads()}
        names = sorted({workload.kernel for workload in known.values()})
        if kernel is not None and kernel not in names:
            raise UsageError(
                f"no kernel '{kernel}' in {_named(stores)}{did_you_mean(kernel, names)}"
            )
        listed = [one for one in known.values() if kernel in (None, one.kernel)]
        listed.sort(key=lambda workload: _key_order(workload.key))
    if not listed:
        raise UsageError(f"no workload to record in {_named(stores)}")
    return listed


def _one_kernel(workloads: list[Workload]) -> list[Workload]:
    """Refuses what one table cannot hold, and says what it is that differs."""
    aspects = {
        "kernels": [workload.kernel for workload in workloads],
        "fingerprints": [workload.fingerprint for workload in workloads],
        "devices": [
            f"{one.device.name} ({one.device.architecture}, driver {one.device.driver})"
            for one in workloads
        ],
        "toolchains": [
            ", ".join(f"{name} {version}" for name, version in sorted(one.toolchain.items()))
            for one in workloads
        ],
    }
    for aspect, found in aspects.items():
        if len(set(found)) > 1:
            raise UsageError(
                "a table holds one kernel, built and run in one place, but there are several "
                f"{aspect}: {'; '.join(sorted(set(found)))}; select with workloads="
            )
    return workloads


def _configs(records: Sequence[_Record], space: Space | None) -> tuple[Config, ...]:
    tried = dict.fromkeys(config for record in records for config in record.visits)
    if space is None:
        return tuple(tried)
    if not space.is_small(_ENUMERABLE):
        return tuple(config for config in tried if config in space)
    return tuple(config for config in space if config in tried)


def _builds(configs: Sequence[Config], records: Sequence[_Record]) -> tuple[Build, ...]:
    histories: dict[Config, list[Trial]] = {config: [] for config in configs}
    for record in records:
        for trial in record.history:
            if trial.config in histories:
                histories[trial.config].append(trial)
    return tuple(_build(histories[config]) for config in configs)


def _build(history: Sequence[Trial]) -> Build:
    """A config that was ever built can be: a failure elsewhere is that workload's own."""
    working = [trial for trial in history if trial.status not in _UNBUILT]
    telling = working or history
    source = next((trial for trial in telling if "build" in trial.cost.work), telling[0])
    described = next((trial for trial in (source, *telling) if trial.facts), source)
    work = source.cost.work
    return Build(
        status=Status.OK if working else source.status,
        seconds=work.get("build"),
        stages=FrozenMap(
            {
                phase.removeprefix(_STAGE): spent
                for phase, spent in work.items()
                if phase.startswith(_STAGE)
            }
        ),
        error="" if working else source.error,
        facts=described.facts,
    )


def _outcome(visits: Sequence[Trial]) -> TableOutcome:
    """A config that was ever measured can be: whatever failed at another visit did not last."""
    if not visits:
        return TableOutcome()
    measured = [one for one in visits if one.status.measured and _samples(one)]
    if not measured:
        failed = next((one for one in visits if one.status.failed), None)
        if failed is None:
            return TableOutcome(Status.RUN_ERROR, error="it was measured without samples")
        return TableOutcome(failed.status, seconds=_seconds(failed), error=failed.error)
    quality = min((_quality(one) for one in measured), key=_BEST_FIRST.index)
    kept = [one for one in measured if _quality(one) == quality]
    statuses = {one.status for one in kept}
    return TableOutcome(
        status=Status.OK if Status.OK in statuses else Status.OUTRACED,
        visits=tuple(_samples(one) for one in kept),
        quality=quality,
        seconds=_seconds(kept[0]),
        error="" if Status.OK in statuses else kept[0].error,
    )


def _samples(trial: Trial) -> tuple[float, ...]:
    """Of somebody else's benchmark there is nothing but its median."""
    timing = trial.timing
    if timing is None:
        return ()
    return timing.samples if timing.foreign is None else (timing.foreign.median_ns,)


def _quality(trial: Trial) -> Quality:
    return "clean" if trial.timing is None else trial.timing.quality


def _seconds(trial: Trial) -> FrozenMap[float]:
    work = trial.cost.work
    return FrozenMap({phase: work[phase] for phase in _PHASES if phase in work})


def _origin(stores: Sequence[StoreReader], records: Sequence[_Record]) -> TableOrigin:
    trials = [one for record in records for visits in record.visits.values() for one in visits]
    ways = sorted({(one.timing.timer, one.timing.l2) for one in trials if one.timing is not None})
    if len(ways) > 1:
        found = "; ".join(f"{timer}, L2 {l2}" for timer, l2 in ways)
        raise UsageError(f"a table holds times measured in one way, but there are several: {found}")
    runs = [run for record in records for store in stores for run in store.runs(record.workload.id)]
    newest = max(runs, key=lambda run: run.started, default=None)
    timer, l2 = ways[0] if ways else ("", "none")
    last = max(trial.created for trial in trials)
    return TableOrigin(
        timer=timer,
        l2=l2,
        whet=newest.whet if newest is not None and newest.whet else __version__,
        date=datetime.fromtimestamp(last, UTC).date().isoformat(),
    )


def _key_order(key: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """By name, and numbers by size: M=64 before M=128."""
    return [(name, *_value_order(key[name])) for name in sorted(key)]


def _value_order(value: Value) -> tuple[Any, ...]:
    if isinstance(value, tuple):
        return (2, [_value_order(item) for item in value], "")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (0, value, "")
    return (1, str(value), type(value).__name__)


def _named(stores: Sequence[StoreReader]) -> str:
    return ", ".join(store.location for store in stores) or "no store"
