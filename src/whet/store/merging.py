"""Reading one store whole, so that another can take it in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from whet.core.run import Run
from whet.core.timeline import Timeline
from whet.core.trial import Trial
from whet.core.workload import Device, Workload
from whet.store.lineage import departing
from whet.store.protocol import Pick, Store, StoreReader
from whet.store.reports import MergedPick


@dataclass(frozen=True)
class Contents:
    """All there is about one workload. `standing` are the ids of the trials that are their
    config's latest; `runs` are in the order in which they started and say what each knew,
    `timelines` are by their ids."""

    workload: Workload
    trials: tuple[Trial, ...]
    standing: tuple[str, ...]
    runs: tuple[Run, ...]
    timelines: dict[str, Timeline] = field(default_factory=dict)

    @property
    def active(self) -> float | None:
        moments = [trial.created for trial in self.trials]
        moments += [run.ended for run in self.runs]
        return max(moments, default=None)


def contents(store: StoreReader) -> Iterator[Contents]:
    for summary in store.workloads():
        yield _contents(store, summary.workload)


def arriving(store: StoreReader, other: StoreReader) -> list[Workload]:
    """What a merge of `other` would make known that `store` does not know yet."""
    known = {summary.workload.id for summary in store.workloads()}
    theirs = [summary.workload for summary in other.workloads()]
    return [workload for workload in theirs if workload.id not in known]


def identity(device: Device) -> Device:
    """Equal for devices whose results are each other's: limits are left out, as in `Workload.id`"""
    return Device(device.name, device.vendor, device.architecture, device.driver)


def lookalikes(devices: Iterable[Device]) -> list[tuple[Device, ...]]:
    """Devices of one name that are not the same: another driver, architecture or vendor."""
    by_name: dict[str, dict[Device, None]] = {}
    for device in devices:
        by_name.setdefault(device.name, {})[identity(device)] = None
    return [tuple(several) for several in by_name.values() if len(several) > 1]


def _contents(store: StoreReader, workload: Workload) -> Contents:
    trials, latest = trials_and_standing(store, workload.id)
    runs = departing(list(reversed(store.runs(workload.id))))
    kept = {run.id: store.timeline(run.id) for run in runs}
    timelines = {id: timeline for id, timeline in kept.items() if timeline is not None}
    return Contents(workload, trials, tuple(trial.id for trial in latest), runs, timelines)


def trials_and_standing(
    store: StoreReader, workload_id: str
) -> tuple[tuple[Trial, ...], tuple[Trial, ...]]:
    """All trials, and those that are their config's latest, also while somebody appends or sweeps.
    What stands is read first: it is among the trials later on, unless it was swept, and of a
    config that came in between the last one stands."""
    standing = store.trials(workload_id)
    trials = store.trials(workload_id, all=True)
    ids, configs = {trial.id for trial in trials}, {trial.config.id for trial in standing}
    later = {trial.config.id: trial for trial in trials if trial.config.id not in configs}
    return tuple(trials), (*(one for one in standing if one.id in ids), *later.values())


def merged_pick(workload: Workload, before: Pick | None, now: Pick | None) -> list[MergedPick]:
    """What is worth telling of a pick that a merge may have touched; at most one."""
    if now is None:
        return []
    told = MergedPick(workload, None if before is None else before.trial, now)
    return [told] if told.changed or now.rivals else []


def take_missed(mine: Store, other: StoreReader) -> None:
    """What is missed there and not known here is missed here; what is known now is not."""
    for miss in other.missed(tuned=True):
        mine.miss(miss)
    mine.forget_missed([m.workload.id for m in mine.missed() if mine.best(m.workload.id)])
