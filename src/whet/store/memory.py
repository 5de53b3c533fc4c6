"""`MemoryStore`: for runs that should leave nothing behind."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from whet.core.errors import StoreError
from whet.core.frozen import FrozenMap
from whet.core.miss import Miss
from whet.core.process import Mark
from whet.core.run import Outcome, Run
from whet.core.shown import drawn
from whet.core.status import Status
from whet.core.timeline import Timeline
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.faults import unknown_run, unknown_workload
from whet.store.matching import nearest
from whet.store.merging import Contents, MergedPick, MergeReport, contents, merged_pick, take_missed
from whet.store.picking import MergeDecision, best_of, decide, placed
from whet.store.protocol import LOCK, Match, Pick, Store, StoreReader, WorkloadSummary
from whet.store.sweeping import GcReport, Sweep, Weighed


@dataclass(eq=False)
class WorkloadHistory:
    """All there is about one workload. `trials` and `runs` are by their ids, `timelines`
    and `marks` by those of the runs, `latest` by config id, each in order of first appearance."""

    workload: Workload
    added: float
    active: float | None = None
    trials: dict[str, Trial] = field(default_factory=dict)
    latest: dict[str, Trial] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    timelines: dict[str, Timeline] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    decision: MergeDecision | None = None

    def touch(self, moment: float) -> None:
        self.active = moment if self.active is None else max(self.active, moment)

    def add(self, trial: Trial) -> bool:
        """False for a trial that is there already."""
        if trial.id in self.trials:
            return False
        self.trials[trial.id] = trial
        self.touch(trial.created)
        return True

    def last_active(self) -> float:
        return self.added if self.active is None else self.active

    def newest_runs(self) -> list[Run]:
        return sorted(self.runs.values(), key=lambda run: run.started)[::-1]

    def ok(self) -> list[Trial]:
        return [trial for trial in self.latest.values() if trial.status is Status.OK]

    def decide(self) -> None:
        """To be called when runs have come, or trials that belong to none."""
        self.decision = decide(self.newest_runs(), list(self.trials.values()))

    def pick(self) -> Pick | None:
        if self.decision is not None:
            return self.decision.pick
        best = best_of(self.newest_runs(), self.latest)
        return None if best is None else Pick(best)

    def best(self) -> Trial | None:
        pick = self.pick()
        return None if pick is None else pick.trial

    def superseded(self) -> list[Trial]:
        standing = {trial.id for trial in self.latest.values()}
        standing |= set() if self.decision is None else self.decision.kept
        return [trial for id, trial in self.trials.items() if id not in standing]

    def weighed(self) -> Weighed:
        return Weighed(
            id=self.workload.id,
            kernel=self.workload.kernel,
            active=self.last_active(),
            bytes=sum(map(_bytes, self.trials.values())),
            superseded_bytes=sum(map(_bytes, self.superseded())),
        )

    def summary(self) -> WorkloadSummary:
        return WorkloadSummary(
            workload=self.workload,
            trials=len(self.trials),
            configs=len(self.latest),
            ok=len(self.ok()),
            active=self.last_active(),
            best=self.best(),
            rivals=() if self.decision is None else self.decision.pick.rivals,
        )


class MemoryStore(Store):
    """Keeps the nouns themselves; gone with the process, and a forked child has its own copy."""

    _repr_html_ = drawn

    def __init__(self, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._closed = False
        self._histories: dict[str, WorkloadHistory] = {}
        self._missed: dict[str, Miss] = {}

    @property
    def location(self) -> str:
        return ":memory:"

    @property
    def read_only(self) -> bool:
        return self._read_only

    def put_workload(self, workload: Workload) -> None:
        with self._writing():
            self._history(workload)

    def append(self, trials: Iterable[Trial]) -> int:
        batch = list(trials)
        with self._writing():
            for trial in batch:
                if trial.workload_id not in self._histories:
                    raise unknown_workload(trial.workload_id, self.location)
            added = 0
            for trial in batch:
                history = self._histories[trial.workload_id]
                if history.add(trial):
                    history.latest[trial.config.id] = trial
                    added += 1
            for trial in batch:
                history = self._histories[trial.workload_id]
                run = history.runs.get(trial.run_id)
                # What a run appends counts when the run has ended: that is soon, and once.
                if history.decision and (run is None or run.outcome is not Outcome.RUNNING):
                    history.decide()
            return added

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        with self._reading():
            history = self._histories.get(workload_id)
            if history is None:
                return []
            return list((history.trials if all else history.latest).values())

    def latest(self, workload_id: str, config_id: str) -> Trial | None:
        with self._reading():
            history = self._histories.get(workload_id)
            return None if history is None else history.latest.get(config_id)

    def best(self, workload_id: str) -> Trial | None:
        with self._reading():
            history = self._histories.get(workload_id)
            return None if history is None else history.best()

    def pick(self, workload_id: str) -> Pick | None:
        with self._reading():
            history = self._histories.get(workload_id)
            return None if history is None else history.pick()

    def save_run(self, run: Run) -> None:
        with self._writing():
            history = self._history(run.workload)
            before = history.runs.get(run.id)
            if before is None:
                run = placed(run, history.newest_runs())
            else:
                run = replace(run, after=before.after, taken=before.taken)
            history.runs[run.id] = run
            history.decide()
            history.touch(run.ended)

    def runs(self, workload_id: str) -> list[Run]:
        with self._reading():
            history = self._histories.get(workload_id)
            return [] if history is None else history.newest_runs()

    def run(self, run_id: str) -> Run | None:
        with self._reading():
            history = self._history_of(run_id)
            return None if history is None else history.runs[run_id]

    def save_timeline(self, run_id: str, timeline: Timeline) -> None:
        with self._writing():
            history = self._history_of(run_id)
            if history is None:
                raise unknown_run(run_id, self.location)
            history.timelines[run_id] = timeline

    def timeline(self, run_id: str) -> Timeline | None:
        with self._reading():
            history = self._history_of(run_id)
            return None if history is None else history.timelines.get(run_id)

    def miss(self, miss: Miss) -> bool:
        with self._writing():
            known = miss.workload.id in self._missed
            self._missed.setdefault(miss.workload.id, miss)
            return not known

    def missed(self, kernel: str | None = None, *, tuned: bool = False) -> list[Miss]:
        with self._reading():
            found = [m for m in self._missed.values() if kernel in (None, m.workload.kernel)]
            return [m for m in found if tuned or not self._is_tuned(m.workload.id)]

    def _is_tuned(self, workload_id: str) -> bool:
        history = self._histories.get(workload_id)
        return history is not None and any(
            run.outcome is Outcome.FINISHED and run.best is not None
            for run in history.runs.values()
        )

    def forget_missed(self, workload_ids: Iterable[str]) -> int:
        with self._writing():
            return sum(self._missed.pop(id, None) is not None for id in workload_ids)

    def mark(self, mark: Mark) -> None:
        with self._writing():
            if mark.workload_id not in self._histories:
                raise unknown_workload(mark.workload_id, self.location)
            self._histories[mark.workload_id].marks[mark.run_id] = mark

    def unmark(self, run_id: str) -> None:
        with self._writing():
            for history in self._histories.values():
                history.marks.pop(run_id, None)

    def marks(self, workload_id: str) -> list[Mark]:
        with self._reading():
            history = self._histories.get(workload_id)
            return [] if history is None else list(history.marks.values())

    def workloads(self, kernel: str | None = None) -> list[WorkloadSummary]:
        with self._reading():
            found = [s for s in self._histories.values() if kernel in (None, s.workload.kernel)]
            found.sort(key=WorkloadHistory.last_active, reverse=True)
            return [history.summary() for history in found]

    def match(self, workload: Workload) -> Match | None:
        with self._reading():
            same = self._histories.get(workload.id)
            if same is not None:
                return Match("strict", same.workload)
            histories = self._histories.values()
            known = [
                s.workload for s in histories if s.workload.kernel == workload.kernel and s.ok()
            ]
            return nearest(workload, known)

    def gc(
        self,
        *,
        older_than_s: float | None = None,
        superseded: bool = False,
        kernel: str | None = None,
        workloads: Collection[str] | None = None,
        max_bytes: int | None = None,
        dry_run: bool = False,
    ) -> GcReport:
        sweep = Sweep.of(older_than_s, superseded, kernel, workloads, max_bytes)
        with self._reading() if dry_run else self._writing():
            known = [history.weighed() for history in self._histories.values()]
            size = sum(one.bytes for one in known)
            going = sweep.choose(known, size)
            whole = [self._histories[one.id] for one in going.workloads]
            trials = [trial for history in whole for trial in history.trials.values()]
            if going.superseded:
                kept = {one.id for one in going.confined} - {one.id for one in going.workloads}
                histories = [history for id, history in self._histories.items() if id in kept]
                trials += [trial for history in histories for trial in history.superseded()]
            if not dry_run:
                self._remove(trials, whole)
                self._remove_missed(sweep)
            freed = sum(map(_bytes, trials))
            return GcReport(
                trials=len(trials),
                runs=sum(len(history.runs) for history in whole),
                workloads=len(whole),
                bytes_freed=freed,
                bytes_left=int(size) - freed,
                kernels=FrozenMap(Counter(one.kernel for one in going.workloads)),
                dry_run=dry_run,
            )

    def merge(self, other: StoreReader) -> MergeReport:
        self._refuse_if_read_only()
        workloads = trials = runs = 0
        picks: list[MergedPick] = []
        for part in contents(other):
            with self._writing():
                workloads += part.workload.id not in self._histories
                history = self._history(part.workload)
                before = history.pick()
                trials += _take_trials(history, part)
                runs += sum(run.id not in history.runs for run in part.runs)
                for run in part.runs:
                    mine = history.runs.get(run.id)
                    if mine is None or mine.outcome is Outcome.RUNNING:
                        history.runs[run.id] = run
                        history.touch(run.ended)
                history.timelines = {**part.timelines, **history.timelines}
                history.decide()
                picks += merged_pick(part.workload, before, history.pick())
        take_missed(self, other)
        return MergeReport(trials, runs, workloads, tuple(picks))

    def close(self) -> None:
        self._closed = True

    def _history(self, workload: Workload) -> WorkloadHistory:
        history = self._histories.setdefault(
            workload.id, WorkloadHistory(workload, added=time.time())
        )
        if workload.origin and workload is not history.workload:
            origin = workload.origin.over(history.workload.origin)
            history.workload = replace(history.workload, origin=origin)
        return history

    def _history_of(self, run_id: str) -> WorkloadHistory | None:
        return next((s for s in self._histories.values() if run_id in s.runs), None)

    def _remove(self, trials: list[Trial], histories: list[WorkloadHistory]) -> None:
        for trial in trials:
            del self._histories[trial.workload_id].trials[trial.id]
        for history in histories:
            del self._histories[history.workload.id]

    def _remove_missed(self, sweep: Sweep) -> None:
        for id, miss in list(self._missed.items()):
            named = sweep.kernel in (None, miss.workload.kernel)
            old = sweep.cutoff is None or miss.at < sweep.cutoff
            if sweep.workloads and sweep.ids is None and named and old:
                del self._missed[id]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with LOCK:
            if self._closed:
                raise StoreError(f"store {self.location} is closed; open a new one")
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._reading():
            self._refuse_if_read_only()
            yield

    def _refuse_if_read_only(self) -> None:
        if self._read_only:
            raise StoreError(f"store {self.location} is read-only; open it without read_only")


def _bytes(trial: Trial) -> int:
    return len(json.dumps(trial.to_json()))


def _take_trials(history: WorkloadHistory, part: Contents) -> int:
    before = dict(history.latest)
    fresh = {trial.id: trial for trial in part.trials if history.add(trial)}
    for trial in fresh.values():
        history.latest.setdefault(trial.config.id, trial)
    for trial in (fresh[id] for id in part.standing if id in fresh):
        mine = before.get(trial.config.id)
        if mine is None or mine.created < trial.created:
            history.latest[trial.config.id] = trial
    return len(fresh)
