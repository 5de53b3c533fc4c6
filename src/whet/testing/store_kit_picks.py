"""What a `Store` owes where several stores have picked a config for one workload, as tests."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.core.config import Config
from whet.core.run import Outcome, Run
from whet.core.status import Status
from whet.core.workload import Workload
from whet.store.protocol import Store
from whet.testing.samples import a_run, a_trial, a_workload
from whet.testing.store_kit_base import StoreMaker

WORKLOAD = a_workload()


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
