"""What a `Store` owes on looking for neighbours, cleaning up and merging, as tests."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.run import Outcome
from whet.core.status import Status
from whet.core.workload import Limits, Workload
from whet.store.protocol import Match, Store
from whet.store.reports import MergeReport
from whet.testing.samples import a_run, a_trial, a_workload
from whet.testing.store_kit_base import StoreMaker, matched, refusal


class MatchObligations(StoreMaker):
    def known(self, folder: Path, *workloads: Workload) -> Store:
        store = self.make_store(folder)
        for workload in workloads:
            store.put_workload(workload)
            store.append([a_trial(workload)])
        return store

    def test_the_same_workload_is_a_strict_match(self, tmp_path: Path) -> None:
        store = self.known(tmp_path, a_workload(), a_workload(key={"M": 1}))
        more_memory = replace(a_workload().device, limits=Limits(memory_bytes=1))
        found = store.match(a_workload(device=more_memory))
        assert found == Match("strict", a_workload())

    def test_another_device_is_never_a_strict_match(self, tmp_path: Path) -> None:
        store = self.known(tmp_path, a_workload())
        device = a_workload().device
        others = (
            replace(device, name="Test CPU 2"),
            replace(device, vendor="nvidia"),
            replace(device, architecture="aarch64"),
            replace(device, driver="6.2"),
        )
        for other in others:
            found = store.match(a_workload(device=other))
            assert found == Match("loose", a_workload(), ("device",))

    def test_an_unknown_kernel_matches_nothing(self, tmp_path: Path) -> None:
        store = self.known(tmp_path, a_workload())
        assert store.match(a_workload(kernel="softmax")) is None

    def test_a_loose_match_says_what_differs(self, tmp_path: Path) -> None:
        store = self.known(tmp_path, a_workload())
        other = replace(a_workload().device, driver="7.0")
        asked = a_workload(device=other, key={"M": 4}, toolchain={"cc": "clang"}, fingerprint="f")
        found = store.match(asked)
        assert found == Match("loose", a_workload(), ("fingerprint", "key", "device", "toolchain"))

    def test_only_what_differs_is_said(self, tmp_path: Path) -> None:
        store = self.known(tmp_path, a_workload())
        found = store.match(a_workload(toolchain={"cc": "clang"}))
        assert found == Match("loose", a_workload(), ("toolchain",))

    def test_the_nearest_key_is_found_on_a_log_scale(self, tmp_path: Path) -> None:
        small, large = a_workload(key={"M": 64}), a_workload(key={"M": 4096})
        store = self.known(tmp_path, small, large)
        assert matched(store, a_workload(key={"M": 256})) == small
        assert matched(store, a_workload(key={"M": 1024})) == large

    def test_another_dtype_is_farther_than_another_size(self, tmp_path: Path) -> None:
        same_size = a_workload(key={"M": 64, "dtype": "f16"})
        same_dtype = a_workload(key={"M": 65536, "dtype": "f32"})
        store = self.known(tmp_path, same_size, same_dtype)
        assert matched(store, a_workload(key={"M": 64, "dtype": "f32"})) == same_dtype

    def test_shapes_are_compared_number_by_number(self, tmp_path: Path) -> None:
        wide, tall = a_workload(key={"shape": (64, 1024)}), a_workload(key={"shape": (1024, 64)})
        store = self.known(tmp_path, wide, tall)
        assert matched(store, a_workload(key={"shape": (128, 2048)})) == wide

    def test_same_device_and_fingerprint_come_before_the_nearest_key(self, tmp_path: Path) -> None:
        other = replace(a_workload().device, name="Other CPU")
        far = a_workload(key={"M": 1 << 20})
        near_elsewhere = a_workload(key={"M": 65}, device=other)
        near_changed = a_workload(key={"M": 65}, fingerprint="changed")
        store = self.known(tmp_path, near_elsewhere, near_changed, far)
        assert matched(store, a_workload(key={"M": 64})) == far

    def test_an_older_version_on_this_device_comes_before_this_version_on_another(
        self, tmp_path: Path
    ) -> None:
        other = replace(a_workload().device, name="Other CPU")
        elsewhere, changed = a_workload(device=other), a_workload(fingerprint="changed")
        store = self.known(tmp_path, elsewhere, changed)
        assert matched(store, a_workload()) == changed

    def test_a_workload_where_nothing_worked_is_not_matched_loosely(self, tmp_path: Path) -> None:
        near, far = a_workload(key={"M": 64}), a_workload(key={"M": 4096})
        store = self.known(tmp_path, far)
        store.put_workload(near)
        store.append([a_trial(near), a_trial(near, status=Status.WRONG_RESULT)])
        assert matched(store, a_workload(key={"M": 65})) == far


class GcObligations(StoreMaker):
    def test_with_nothing_asked_for_nothing_goes(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {}, {})
        report = store.gc()
        assert (report.trials, report.runs, report.workloads, report.bytes_freed) == (0, 0, 0, 0)
        assert len(store.trials(workload.id, all=True)) == 2

    def test_superseded_trials_go_and_the_latest_stay(self, tmp_path: Path) -> None:
        store, workload = self.filled(
            tmp_path,
            {"config": {"BM": 1}, "median_ns": 1.0},
            {"config": {"BM": 2}, "median_ns": 5.0},
            {"config": {"BM": 1}, "median_ns": 3.0},
        )
        kept, best = store.trials(workload.id), store.best(workload.id)
        report = store.gc(superseded=True)
        assert (report.trials, report.runs, report.workloads) == (1, 0, 0)
        assert store.trials(workload.id) == kept
        assert sorted(t.id for t in store.trials(workload.id, all=True)) == sorted(
            t.id for t in kept
        )
        assert store.best(workload.id) == best

    def test_workloads_not_active_for_long_go_whole(self, tmp_path: Path) -> None:
        now = time.time()
        store, old = self.filled(tmp_path, {"created": now - 900}, {"created": now - 800})
        store.save_run(a_run(old, started=now - 900))
        recent = a_workload(key={"M": 1})
        store.put_workload(recent)
        store.append([a_trial(recent, created=now - 900), a_trial(recent, created=now - 100)])
        report = store.gc(older_than_s=500)
        assert (report.trials, report.runs, report.workloads) == (2, 1, 1)
        assert [summary.workload for summary in store.workloads()] == [recent]
        assert len(store.trials(recent.id, all=True)) == 2
        assert store.runs(old.id) == []

    def test_a_recent_run_keeps_an_old_workload(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {"created": 10.0})
        store.save_run(a_run(workload, started=time.time()))
        assert store.gc(older_than_s=500).workloads == 0

    def test_a_kernel_alone_goes_whole(self, tmp_path: Path) -> None:
        store, _ = self.filled(tmp_path, {}, {})
        softmax = a_workload(kernel="softmax")
        store.put_workload(softmax)
        store.append([a_trial(softmax)])
        report = store.gc(kernel="matmul")
        assert (report.trials, report.workloads) == (2, 1)
        assert [summary.workload for summary in store.workloads()] == [softmax]

    def test_a_kernel_confines_what_else_is_asked_for(self, tmp_path: Path) -> None:
        store, matmul = self.filled(tmp_path, {}, {})
        softmax = a_workload(kernel="softmax")
        store.put_workload(softmax)
        store.append([a_trial(softmax), a_trial(softmax)])
        assert store.gc(kernel="softmax", superseded=True).trials == 1
        assert len(store.trials(softmax.id, all=True)) == 1
        assert len(store.trials(matmul.id, all=True)) == 2
        assert store.gc(kernel="softmax", older_than_s=0).workloads == 1
        assert [summary.workload for summary in store.workloads()] == [matmul]

    def test_a_dry_run_counts_and_removes_nothing(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {}, {})
        store.save_run(a_run(workload))
        would = store.gc(kernel="matmul", dry_run=True)
        assert would.dry_run
        assert would.bytes_freed > 0
        assert len(store.trials(workload.id, all=True)) == 2
        did = store.gc(kernel="matmul")
        assert not did.dry_run
        assert (did.trials, did.runs, did.workloads) == (2, 1, 1)
        assert (would.trials, would.runs, would.workloads) == (2, 1, 1)

    def test_what_went_can_be_appended_again(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path)
        trial = a_trial(workload)
        store.append([trial])
        store.gc(kernel="matmul")
        store.put_workload(workload)
        assert store.append([trial]) == 1
        assert store.best(workload.id) == trial

    def test_a_negative_age_is_refused(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {})
        refusal(lambda: store.gc(older_than_s=-1), UsageError)
        assert len(store.trials(workload.id)) == 1

    def test_chosen_workloads_alone_go_whole(self, tmp_path: Path) -> None:
        store, gone = self.filled(tmp_path, {}, {})
        kept = a_workload(key={"M": 1})
        store.put_workload(kept)
        store.append([a_trial(kept)])
        report = store.gc(workloads=[gone.id, "of nobody"])
        assert (report.trials, report.workloads, dict(report.kernels)) == (2, 1, {"matmul": 1})
        assert [summary.workload for summary in store.workloads()] == [kept]

    def test_no_chosen_workloads_are_none_and_not_all(self, tmp_path: Path) -> None:
        store, _ = self.filled(tmp_path, {}, {})
        assert store.gc(workloads=[]).workloads == 0
        assert store.gc(workloads=[], older_than_s=0, superseded=True).trials == 0
        assert len(store.workloads()) == 1

    def test_chosen_workloads_confine_what_else_is_asked_for(self, tmp_path: Path) -> None:
        store, chosen = self.filled(tmp_path, {}, {})
        other = a_workload(key={"M": 1})
        store.put_workload(other)
        store.append([a_trial(other), a_trial(other)])
        assert store.gc(workloads=[chosen.id], superseded=True).trials == 1
        assert len(store.trials(other.id, all=True)) == 2
        assert store.gc(workloads=[chosen.id], kernel="softmax").workloads == 0


class MergeObligations(StoreMaker):
    def pair(self, folder: Path) -> tuple[Store, Store]:
        mine, theirs = folder / "mine", folder / "theirs"
        mine.mkdir()
        theirs.mkdir()
        return self.make_store(mine), self.make_store(theirs)

    def test_what_the_other_has_is_added_once(self, tmp_path: Path) -> None:
        mine, theirs = self.pair(tmp_path)
        workload, both = a_workload(key={"M": 1}), a_workload(key={"M": 2})
        shared = a_trial(both)
        for store in (mine, theirs):
            store.put_workload(both)
            store.append([shared])
        theirs.put_workload(workload)
        theirs.append([a_trial(workload, {"BM": n}) for n in (3, 1, 2)])
        theirs.append([a_trial(workload, {"BM": 3}, median_ns=2.0)])
        run = a_run(workload, {"BM": 1})
        theirs.save_run(run)
        assert mine.merge(theirs) == MergeReport(trials=4, runs=1, workloads=1)
        assert mine.merge(theirs) == MergeReport()
        for store in (mine, theirs):
            assert [t.config["BM"] for t in store.trials(workload.id)] == [3, 1, 2]
        assert mine.trials(workload.id) == theirs.trials(workload.id)
        assert mine.runs(workload.id) == [run]
        assert mine.best(workload.id) == theirs.best(workload.id)
        assert mine.trials(both.id, all=True) == [shared]

    def test_of_a_config_both_have_tried_the_later_trial_is_the_latest(
        self, tmp_path: Path
    ) -> None:
        mine, theirs = self.pair(tmp_path)
        workload = a_workload()
        for store in (mine, theirs):
            store.put_workload(workload)
        old_here = a_trial(workload, {"BM": 1}, created=10.0)
        new_there = a_trial(workload, {"BM": 1}, created=20.0)
        new_here = a_trial(workload, {"BM": 2}, created=20.0)
        old_there = a_trial(workload, {"BM": 2}, created=10.0)
        mine.append([old_here, new_here])
        theirs.append([new_there, old_there])
        assert mine.merge(theirs).trials == 2
        assert theirs.merge(mine).trials == 2
        for store in (mine, theirs):
            assert store.latest(workload.id, Config(BM=1).id) == new_there
            assert store.latest(workload.id, Config(BM=2).id) == new_here

    def test_devices_stay_apart(self, tmp_path: Path) -> None:
        mine, theirs = self.pair(tmp_path)
        here = a_workload()
        there = a_workload(device=replace(here.device, name="Other CPU"))
        for store, workload in ((mine, here), (theirs, there)):
            store.put_workload(workload)
            store.append([a_trial(workload)])
        mine.merge(theirs)
        assert len(mine.trials(here.id, all=True)) == 1
        assert len(mine.trials(there.id, all=True)) == 1

    def test_a_run_that_has_ended_meanwhile_replaces_its_beginning(self, tmp_path: Path) -> None:
        mine, theirs = self.pair(tmp_path)
        begun = a_run(a_workload(), outcome=Outcome.RUNNING)
        ended = replace(begun, outcome=Outcome.FINISHED, wall_s=3.0)
        mine.save_run(begun)
        theirs.save_run(ended)
        assert mine.merge(theirs).runs == 0
        assert mine.run(begun.id) == ended

    def test_the_beginning_of_a_run_does_not_replace_its_end(self, tmp_path: Path) -> None:
        mine, theirs = self.pair(tmp_path)
        begun = a_run(a_workload(), outcome=Outcome.RUNNING)
        ended = replace(begun, outcome=Outcome.FINISHED)
        mine.save_run(ended)
        theirs.save_run(begun)
        mine.merge(theirs)
        assert mine.run(begun.id) == ended

    def test_a_store_merged_with_itself_gains_nothing(self, tmp_path: Path) -> None:
        store, workload = self.filled(tmp_path, {}, {})
        assert store.merge(store) == MergeReport()
        assert len(store.trials(workload.id, all=True)) == 2
