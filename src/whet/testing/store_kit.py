"""Contract tests for stores, as a pytest class.

    class TestMyStore(StoreContract):
        def make_store(self, folder):
            return MyStore(folder / "store")

Each call of `make_store` gets its own folder and must return an empty store.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.run import Outcome, Run
from whet.core.status import Status
from whet.core.workload import Limits, Workload
from whet.store.merging import MergeReport
from whet.store.protocol import Match, Store
from whet.testing.samples import a_run, a_trial, a_workload
from whet.testing.store_kit_base import (
    WORKLOAD,
    BestObligations,
    LifeObligations,
    MarkObligations,
    MissedObligations,
    RunObligations,
    StoreMaker,
    SummaryObligations,
    TimelineObligations,
    TrialObligations,
    matched,
    refusal,
)


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


def tuned(store: Store, pick: str | None, medians: Mapping[str, float], **changes: Any) -> Run:
    """A run that measured these configs and chose `pick`; the others were outraced, but for those
    that `equals` names. Each call is a second later than the one before it."""
    started = changes.pop("started", 1_700_000_000.0 + next(_seconds))
    equals = [Config(BM=name) for name in changes.pop("equals", ())]
    best = None if pick is None else Config(BM=pick)
    run = a_run(WORKLOAD, best, started=started, equals=tuple(equals), **changes)
    kept = [config.id for config in (best, *equals) if config is not None]
    store.save_run(replace(run, outcome=Outcome.RUNNING, best=None, equals=()))
    store.append(
        a_trial(
            WORKLOAD,
            {"BM": name},
            median,
            run_id=run.id,
            created=started,
            status=Status.OK if Config(BM=name).id in kept or not kept else Status.OUTRACED,
        )
        for name, median in medians.items()
    )
    store.save_run(run)
    return run


_seconds = itertools.count()


def shown(store: Store, workload: Workload = WORKLOAD) -> str:
    pick = store.pick(workload.id)
    assert pick is not None
    assert store.best(workload.id) == pick.trial
    return str(pick.trial.config["BM"])


def contested(store: Store) -> set[str]:
    """The configs that may be the best, where it is not sure which; else none."""
    pick = store.pick(WORKLOAD.id)
    assert pick is not None
    rivals = {str(rival.config["BM"]) for rival in pick.rivals}
    return {shown(store), *rivals} if rivals else set()


class PickObligations(StoreMaker):
    def several(self, folder: Path, count: int) -> list[Store]:
        stores = []
        for number in range(count):
            place = folder / f"store{next(_seconds)}-{number}"
            place.mkdir()
            stores.append(self.make_store(place))
        return stores

    def disagreeing(self, folder: Path) -> tuple[Store, Store]:
        """One was tuned while the machine had nothing else to do, the other, later, was not."""
        idle, busy = self.several(folder, 2)
        tuned(idle, "a", {"a": 10.0, "b": 16.0})
        tuned(busy, "b", {"a": 40.0, "b": 30.0})
        return idle, busy

    def test_without_a_merge_the_pick_is_the_best_and_not_contested(self, tmp_path: Path) -> None:
        (store,) = self.several(tmp_path, 1)
        assert store.pick(WORKLOAD.id) is None
        tuned(store, "a", {"a": 10.0, "b": 16.0})
        tuned(store, "b", {"b": 9.0, "c": 16.0})
        assert shown(store) == "b"
        assert contested(store) == set()

    def test_where_two_stores_disagree_the_receivers_pick_stays_and_is_contested(
        self, tmp_path: Path
    ) -> None:
        for receiver, expected in ((0, "a"), (1, "b")):
            stores = self.disagreeing(tmp_path)
            before = stores[receiver].best(WORKLOAD.id)
            stores[receiver].merge(stores[1 - receiver])
            assert shown(stores[receiver]) == expected
            assert contested(stores[receiver]) == {"a", "b"}
            assert stores[receiver].best(WORKLOAD.id) == before

    def test_the_report_names_what_is_contested_every_time(self, tmp_path: Path) -> None:
        idle, busy = self.disagreeing(tmp_path)
        for _ in range(2):
            (named,) = idle.merge(busy).picks
            assert named.workload == WORKLOAD
            assert not named.changed
            assert [rival.config["BM"] for rival in named.now.rivals] == ["b"]

    def test_picks_that_were_never_measured_together_are_contested(self, tmp_path: Path) -> None:
        one, two = self.several(tmp_path, 2)
        tuned(one, "a", {"a": 10.0})
        tuned(two, "b", {"b": 30.0, "a": 40.0})
        one.merge(two)
        assert shown(one) == "a"
        assert contested(one) == {"a", "b"}

    def test_an_order_on_which_both_stores_agree_decides(self, tmp_path: Path) -> None:
        for receiver in (0, 1):
            stores = self.several(tmp_path, 2)
            tuned(stores[0], "b", {"a": 16.0, "b": 10.0})
            tuned(stores[0], "a", {"a": 15.0, "c": 20.0})
            tuned(stores[1], "b", {"a": 40.0, "b": 30.0})
            report = stores[receiver].merge(stores[1 - receiver])
            assert shown(stores[receiver]) == "b"
            assert contested(stores[receiver]) == set()
            assert [named.changed for named in report.picks] == ([True] if receiver == 0 else [])

    def test_picks_that_both_stores_call_equal_have_no_order_to_agree_on(
        self, tmp_path: Path
    ) -> None:
        one, two = self.several(tmp_path, 2)
        tuned(one, "a", {"a": 10.0, "b": 10.1}, equals="b")
        tuned(two, "b", {"a": 30.1, "b": 30.0}, equals="a")
        one.merge(two)
        assert shown(one) == "a"
        assert contested(one) == {"a", "b"}

    def test_the_same_pick_is_nothing_to_report(self, tmp_path: Path) -> None:
        one, two = self.several(tmp_path, 2)
        tuned(one, "a", {"a": 10.0, "b": 16.0})
        tuned(two, "a", {"a": 30.0, "b": 40.0})
        assert one.merge(two).picks == ()
        assert shown(one) == "a"

    def test_a_choice_made_in_knowledge_of_this_stores_replaces_it(self, tmp_path: Path) -> None:
        mine, copy = self.several(tmp_path, 2)
        tuned(mine, "a", {"a": 10.0, "b": 16.0})
        copy.merge(mine)
        tuned(copy, "c", {"a": 10.0, "c": 8.0})
        (named,) = mine.merge(copy).picks
        assert named.changed
        assert shown(mine) == "c"
        assert contested(mine) == set()

    def test_the_order_of_merging_makes_no_difference(self, tmp_path: Path) -> None:
        medians = {"a": 10.0, "b": 10.0, "c": 10.0}
        stores = self.several(tmp_path, 3)
        for store, pick, started in zip(stores, "abc", (200.0, 300.0, 100.0), strict=True):
            tuned(store, pick, medians, started=started)
        for order in itertools.permutations(stores):
            blank, owner = self.several(tmp_path, 2)
            tuned(owner, "x", {"x": 30.0}, started=250.0)
            for store in order:
                blank.merge(store)
                owner.merge(store)
            assert (shown(blank), contested(blank)) == ("c", {"a", "b", "c"})
            assert (shown(owner), contested(owner)) == ("x", {"a", "b", "c", "x"})

    def test_a_contest_is_passed_on(self, tmp_path: Path) -> None:
        idle, busy = self.disagreeing(tmp_path)
        (third,) = self.several(tmp_path, 1)
        idle.merge(busy)
        (named,) = third.merge(idle).picks
        assert named.before is None
        assert contested(third) == {"a", "b"}

    def test_a_later_run_that_chooses_ends_the_contest(self, tmp_path: Path) -> None:
        idle, busy = self.disagreeing(tmp_path)
        idle.merge(busy)
        tuned(idle, "b", {"a": 11.0, "b": 10.0})
        assert shown(idle) == "b"
        assert contested(idle) == set()
        assert busy.merge(idle).picks == ()
        assert contested(busy) == set()

    def test_a_run_that_chooses_nothing_leaves_the_contest_as_it_was(self, tmp_path: Path) -> None:
        idle, busy = self.disagreeing(tmp_path)
        idle.merge(busy)
        for outcome in (Outcome.RUNNING, Outcome.FINISHED, Outcome.FAILED):
            tuned(idle, None, {"c": 30.0}, outcome=outcome)
        tuned(idle, "b", {"b": 10.0}, outcome=Outcome.INTERRUPTED)
        assert shown(idle) == "a"
        assert contested(idle) == {"a", "b"}

    def test_a_run_that_was_under_way_when_a_store_was_merged_does_not_settle_it(
        self, tmp_path: Path
    ) -> None:
        idle, busy = self.disagreeing(tmp_path)
        begun = tuned(idle, None, {}, outcome=Outcome.RUNNING)
        idle.merge(busy)
        tuned(idle, "a", {"a": 10.0, "c": 12.0}, id=begun.id)
        assert shown(idle) == "a"
        assert contested(idle) == {"a", "b"}

    def test_gc_keeps_what_is_contested(self, tmp_path: Path) -> None:
        idle, busy = self.disagreeing(tmp_path)
        idle.merge(busy)
        tuned(idle, None, {"a": 12.0, "c": 30.0}, outcome=Outcome.RUNNING)
        before = idle.pick(WORKLOAD.id)
        idle.gc(superseded=True)
        assert idle.pick(WORKLOAD.id) == before
        assert idle.gc(superseded=True, max_bytes=1 << 40).trials == 0
        tuned(idle, "a", {"a": 10.0, "b": 16.0})
        assert idle.gc(superseded=True).trials > 0
        assert shown(idle) == "a"

    def test_what_another_store_left_unfinished_does_not_replace_a_pick(
        self, tmp_path: Path
    ) -> None:
        for outcome in (Outcome.RUNNING, Outcome.INTERRUPTED):
            mine, theirs = self.several(tmp_path, 2)
            tuned(mine, "a", {"a": 10.0, "b": 16.0})
            run = tuned(theirs, None, {"b": 3.0}, outcome=outcome)
            lost = a_trial(
                WORKLOAD, {"BM": "a"}, 40.0, status=Status.OUTRACED, run_id=run.id, created=2e9
            )
            theirs.append([lost])
            mine.merge(theirs)
            assert shown(mine) == "a"
            assert contested(mine) == {"a", "b"}

    def test_a_pick_that_computes_something_else_elsewhere_is_not_shown(
        self, tmp_path: Path
    ) -> None:
        idle, busy = self.disagreeing(tmp_path)
        run = tuned(busy, "b", {"b": 30.0})
        busy.append([a_trial(WORKLOAD, {"BM": "a"}, status=Status.WRONG_RESULT, run_id=run.id)])
        idle.merge(busy)
        assert shown(idle) == "b"
        assert contested(idle) == {"a", "b"}

    def test_a_summary_has_what_the_pick_is_contested_with(self, tmp_path: Path) -> None:
        idle, busy = self.disagreeing(tmp_path)
        idle.merge(busy)
        (summary,) = idle.workloads()
        pick = idle.pick(WORKLOAD.id)
        assert pick is not None
        assert (summary.best, summary.rivals) == (pick.trial, pick.rivals)


class StoreContract(
    TrialObligations,
    BestObligations,
    RunObligations,
    TimelineObligations,
    MissedObligations,
    MarkObligations,
    SummaryObligations,
    MatchObligations,
    GcObligations,
    SizeObligations,
    MergeObligations,
    PickObligations,
    LifeObligations,
):
    """Contract tests for a `Store`; durability and concurrent processes need tests of their own."""
