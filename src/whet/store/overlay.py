"""`OverlayStore`: a store of one's own, over another that is only read; and `DelegatingStore`, for
any store over one's own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.core.miss import Miss
from whet.core.process import Mark
from whet.core.run import Run
from whet.core.shown import drawn
from whet.core.status import Status
from whet.core.timeline import Timeline
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.beside import LayeredModels
from whet.store.matching import nearest
from whet.store.picking import best_of, departing, placed
from whet.store.protocol import Match, Models, Pick, Store, StoreReader, WorkloadSummary

if TYPE_CHECKING:
    from whet.store.merging import MergeReport
    from whet.store.sweeping import GcReport


class DelegatingStore(Store):
    """Passes on to a store of one's own what it does not do itself."""

    _repr_html_ = drawn

    def __init__(self, own: Store) -> None:
        self._own = own

    @property
    def location(self) -> str:
        return self._own.location

    @property
    def read_only(self) -> bool:
        return self._own.read_only

    @property
    def lock_folder(self) -> Path | None:
        return self._own.lock_folder

    @property
    def models(self) -> Models:
        return self._own.models

    @property
    def size_bytes(self) -> int | None:
        return self._own.size_bytes

    @property
    def replaced(self) -> bool:
        return self._own.replaced

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        return self._own.trials(workload_id, all=all)

    def latest(self, workload_id: str, config_id: str) -> Trial | None:
        return self._own.latest(workload_id, config_id)

    def pick(self, workload_id: str) -> Pick | None:
        return self._own.pick(workload_id)

    def runs(self, workload_id: str) -> list[Run]:
        return self._own.runs(workload_id)

    def run(self, run_id: str) -> Run | None:
        return self._own.run(run_id)

    def timeline(self, run_id: str) -> Timeline | None:
        return self._own.timeline(run_id)

    def missed(self, kernel: str | None = None, *, tuned: bool = False) -> list[Miss]:
        return self._own.missed(kernel, tuned=tuned)

    def marks(self, workload_id: str) -> list[Mark]:
        return self._own.marks(workload_id)

    def workloads(self, kernel: str | None = None) -> list[WorkloadSummary]:
        return self._own.workloads(kernel)

    def match(self, workload: Workload) -> Match | None:
        return self._own.match(workload)

    def put_workload(self, workload: Workload) -> None:
        self._own.put_workload(workload)

    def append(self, trials: Iterable[Trial]) -> int:
        return self._own.append(trials)

    def save_run(self, run: Run) -> None:
        self._own.save_run(run)

    def save_timeline(self, run_id: str, timeline: Timeline) -> None:
        self._own.save_timeline(run_id, timeline)

    def miss(self, miss: Miss) -> bool:
        return self._own.miss(miss)

    def forget_missed(self, workload_ids: Iterable[str]) -> int:
        return self._own.forget_missed(workload_ids)

    def mark(self, mark: Mark) -> None:
        self._own.mark(mark)

    def unmark(self, run_id: str) -> None:
        self._own.unmark(run_id)

    def gc(self, **asked: Any) -> GcReport:
        return self._own.gc(**asked)

    def merge(self, other: StoreReader) -> MergeReport:
        return self._own.merge(other)

    def close(self) -> None:
        self._own.close()


class OverlayStore(DelegatingStore):
    """Reads as if everything in `under` had been there before the first of `own`, and writes to
    `own` alone.

    What one's own store says of a config stands, whatever the dates; of runs, one's own come
    first, each store's newest first. Closing it leaves `under` open.
    """

    def __init__(self, own: Store, under: StoreReader) -> None:
        super().__init__(own)
        self._under = under

    @property
    def layers(self) -> tuple[Store, StoreReader]:
        """One's own, and what lies under it."""
        return self._own, self._under

    @property
    def models(self) -> Models:
        return LayeredModels(self._own.models, self._under.models)

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        own = self._own.trials(workload_id, all=all)
        under = self._under.trials(workload_id, all=all)
        if not own or not under:
            return own or under
        if all:
            return list({trial.id: trial for trial in (*under, *own)}.values())
        return list({trial.config.id: trial for trial in (*under, *own)}.values())

    def latest(self, workload_id: str, config_id: str) -> Trial | None:
        own = self._own.latest(workload_id, config_id)
        return self._under.latest(workload_id, config_id) if own is None else own

    def pick(self, workload_id: str) -> Pick | None:
        own, under = self._own.pick(workload_id), self._under.pick(workload_id)
        if under is None:
            return own
        if own is None and self._own.latest(workload_id, under.trial.config.id) is None:
            return under
        latest = {trial.config.id: trial for trial in self.trials(workload_id)}
        best = best_of(self.runs(workload_id), latest)
        for layer in (own, under):
            # Of contested picks it need not be the newest run's that stands.
            if layer is not None and (layer.rivals or layer.trial == best):
                return layer
        return None if best is None else Pick(best)

    def runs(self, workload_id: str) -> list[Run]:
        own = self._own.runs(workload_id)
        ids = {run.id for run in own}
        return [*own, *(run for run in self._under.runs(workload_id) if run.id not in ids)]

    def run(self, run_id: str) -> Run | None:
        own = self._own.run(run_id)
        return self._under.run(run_id) if own is None else own

    def timeline(self, run_id: str) -> Timeline | None:
        own = self._own.timeline(run_id)
        return self._under.timeline(run_id) if own is None else own

    def workloads(self, kernel: str | None = None) -> list[WorkloadSummary]:
        own = {one.workload.id: one for one in self._own.workloads(kernel)}
        found = dict(own)
        for under in self._under.workloads(kernel):
            id_ = under.workload.id
            found[id_] = self._joined(own[id_], under) if id_ in own else under
        return sorted(found.values(), key=lambda one: -one.active)

    def match(self, workload: Workload) -> Match | None:
        own = self._own.match(workload)
        if own is not None and own.kind == "strict":
            return own
        under = self._under.match(workload)
        if under is None or under.kind == "strict":
            return under or own
        known = [under.workload] if own is None else [own.workload, under.workload]
        return nearest(workload, known)

    def save_run(self, run: Run) -> None:
        """With what lies under it known to it, should that ever be merged into one's own."""
        under = departing(list(reversed(self._under.runs(run.workload.id))))
        self._own.save_run(placed(run, under[::-1]))

    def _joined(self, own: WorkloadSummary, under: WorkloadSummary) -> WorkloadSummary:
        id_ = own.workload.id
        latest, pick = self.trials(id_), self.pick(id_)
        return WorkloadSummary(
            workload=own.workload,
            trials=len(self.trials(id_, all=True)),
            configs=len(latest),
            ok=sum(trial.status is Status.OK for trial in latest),
            active=max(own.active, under.active),
            best=None if pick is None else pick.trial,
            rivals=() if pick is None else pick.rivals,
        )
