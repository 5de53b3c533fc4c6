"""What a `Store` owes on shrinking to a size, as tests."""

from __future__ import annotations

import time
from pathlib import Path

from whet.core.errors import UsageError
from whet.core.workload import Workload
from whet.store.protocol import Store
from whet.testing.samples import a_trial, a_workload
from whet.testing.store_kit_base import StoreMaker, refusal


class SizeObligations(StoreMaker):
    """Six workloads of some 400 kB each, half of that superseded; `M` tells their age."""

    def large(self, folder: Path) -> tuple[Store, list[Workload], int]:
        store = self.make_store(folder)
        workloads = [a_workload(key={"M": age}) for age in (3, 1, 5, 2, 6, 4)]
        for workload in workloads:
            created, said = time.time() - 1000 * workload.key["M"], "x" * 20_000
            store.put_workload(workload)
            store.append(
                a_trial(workload, {"BM": n % 10}, created=created, error=said) for n in range(20)
            )
        return store, workloads, store.gc(dry_run=True).bytes_left

    def test_a_store_that_fits_loses_nothing(self, tmp_path: Path) -> None:
        store, _, size = self.large(tmp_path)
        report = store.gc(max_bytes=size)
        assert (report.trials, report.workloads, report.bytes_left) == (0, 0, size)

    def test_superseded_trials_are_the_first_to_go(self, tmp_path: Path) -> None:
        store, workloads, size = self.large(tmp_path)
        report = store.gc(max_bytes=int(0.8 * size))
        assert (report.trials, report.workloads) == (60, 0)
        assert [len(store.trials(one.id, all=True)) for one in workloads] == [10] * 6

    def test_then_workloads_go_oldest_first_and_no_more_than_needed(self, tmp_path: Path) -> None:
        store, _, size = self.large(tmp_path)
        report = store.gc(max_bytes=int(0.3 * size))
        assert [one.workload.key["M"] for one in store.workloads()] == [1, 2, 3]
        assert (report.trials, report.workloads) == (90, 3)
        assert store.gc(dry_run=True).bytes_left == report.bytes_left <= 0.3 * size

    def test_a_dry_run_says_the_same_and_removes_nothing(self, tmp_path: Path) -> None:
        store, _, size = self.large(tmp_path)
        would = store.gc(max_bytes=int(0.3 * size), dry_run=True)
        assert len(store.workloads()) == 6
        did = store.gc(max_bytes=int(0.3 * size))
        assert (would.trials, would.workloads, would.kernels) == (90, 3, did.kernels)

    def test_what_may_not_go_stays_however_large_it_is(self, tmp_path: Path) -> None:
        store, workloads, _ = self.large(tmp_path)
        store.gc(max_bytes=0, workloads=[workloads[0].id])
        assert len(store.workloads()) == 5
        assert len(store.trials(workloads[1].id, all=True)) == 20

    def test_a_size_of_nothing_leaves_nothing(self, tmp_path: Path) -> None:
        store, _, _ = self.large(tmp_path)
        assert store.gc(max_bytes=0).workloads == 6
        assert store.workloads() == []

    def test_a_negative_size_is_refused(self, tmp_path: Path) -> None:
        store, _, _ = self.large(tmp_path)
        refusal(lambda: store.gc(max_bytes=-1), UsageError)
        assert len(store.workloads()) == 6
