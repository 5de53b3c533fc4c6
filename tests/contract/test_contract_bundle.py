"""What a bundle knows reads as a store does: every obligation about reading, through a file."""

from __future__ import annotations

from pathlib import Path

from whet.core.run import Run
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store import Match, MemoryStore, OverlayStore, Pick, SqliteStore, Store, WorkloadSummary
from whet.store.bundles.bundle import open_bundle
from whet.store.bundles.writing import write_bundle
from whet.store.overlay import DelegatingStore
from whet.testing.store_kit import (
    BestObligations,
    MatchObligations,
    PickObligations,
    RunObligations,
    StoreContract,
    SummaryObligations,
    TrialObligations,
)


class Repacked(DelegatingStore):
    """Written to in memory; whatever is read is packed and read from the bundle."""

    def __init__(self, folder: Path, *, overlaid: bool) -> None:
        super().__init__(MemoryStore())
        self._path = folder / "repacked.whet"
        self._overlaid = overlaid

    def _packed(self) -> Store:
        write_bundle(self._path, self._own)
        bundle = open_bundle(self._path).store
        return OverlayStore(MemoryStore(), bundle) if self._overlaid else bundle

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        return self._packed().trials(workload_id, all=all)

    def latest(self, workload_id: str, config_id: str) -> Trial | None:
        return self._packed().latest(workload_id, config_id)

    def pick(self, workload_id: str) -> Pick | None:
        return self._packed().pick(workload_id)

    def runs(self, workload_id: str) -> list[Run]:
        return self._packed().runs(workload_id)

    def run(self, run_id: str) -> Run | None:
        return self._packed().run(run_id)

    def workloads(self, kernel: str | None = None) -> list[WorkloadSummary]:
        return self._packed().workloads(kernel)

    def match(self, workload: Workload) -> Match | None:
        return self._packed().match(workload)


class _ReadObligations(
    TrialObligations,
    BestObligations,
    RunObligations,
    SummaryObligations,
    MatchObligations,
    PickObligations,
):
    """Workloads that were never tried are left out of a bundle, so two obligations do not hold."""

    test_a_workload_without_trials_is_listed_as_active_when_it_was_put = None  # type: ignore[assignment]
    test_workloads_of_one_kernel_can_be_asked_for = None  # type: ignore[assignment]


class TestBundle(_ReadObligations):
    def make_store(self, folder: Path) -> Store:
        return Repacked(folder, overlaid=False)


class TestEmptyStoreOverBundle(_ReadObligations):
    def make_store(self, folder: Path) -> Store:
        return Repacked(folder, overlaid=True)


class TestStoreOverEmptyBundle(StoreContract):
    def make_store(self, folder: Path) -> Store:
        write_bundle(folder / "empty.whet", MemoryStore())
        return OverlayStore(
            SqliteStore(folder / "store.db"), open_bundle(folder / "empty.whet").store
        )
