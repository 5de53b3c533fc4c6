"""Reading one store whole, so that another can take it in, and what came of that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from whet.core.run import Run
from whet.core.timeline import Timeline
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.picking import departing
from whet.store.protocol import Pick, Store, StoreReader


@dataclass(frozen=True)
class MergedPick:
    """What a merge has made of a workload's pick; `before` is None where there was none."""

    workload: Workload
    before: Trial | None
    now: Pick

    @property
    def changed(self) -> bool:
        return self.before is not None and self.before.config != self.now.trial.config


@dataclass(frozen=True)
class MergeReport:
    """What was not there before. `picks` are those that the merge has changed, and those of the
    other store's workloads that are contested, whether or not they were so before."""

    trials: int = 0
    runs: int = 0
    workloads: int = 0
    picks: tuple[MergedPick, ...] = ()

    def plus(self, more: MergeReport) -> MergeReport:
        return MergeReport(
            trials=self.trials + more.trials,
            runs=self.runs + more.runs,
            workloads=self.workloads + more.workloads,
            picks=self.picks + more.picks,
        )


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
    forget_known(mine)


def forget_known(mine: Store) -> None:
    """What has a result by now is missed no more."""
    mine.forget_missed([m.workload.id for m in mine.missed() if mine.best(m.workload.id)])
