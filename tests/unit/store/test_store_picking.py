"""Picks of stores that were merged, whatever they knew of each other before."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.core.run import Outcome, Run
from whet.core.status import Status
from whet.store import MemoryStore, OverlayStore, SqliteStore, Store, open_store
from whet.store.bundles.bundle import open_bundle
from whet.store.bundles.writing import unpack_bundle, write_bundle
from whet.testing.samples import a_run, a_trial
from whet.testing.store_kit import WORKLOAD, contested, shown, tuned

NAMES = "abc"

Step = tuple[str, int, int, dict[str, float]]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("tune", "interrupt", "merge")),
        st.integers(0, 2),
        st.integers(0, 2),
        st.dictionaries(st.sampled_from(NAMES), st.sampled_from((10.0, 20.0, 30.0)), min_size=1),
    ),
    max_size=8,
)


def history(steps: list[Step]) -> list[Store]:
    """Three stores that were tuned and merged in this order."""
    stores: list[Store] = [MemoryStore(), MemoryStore(), MemoryStore()]
    moments = itertools.count(1)
    for kind, one, two, about in steps:
        if kind == "merge":
            stores[one].merge(stores[two])
        else:
            # No two times are quite the same.
            medians = {name: ns + 1e-3 * next(moments) for name, ns in about.items()}
            best = min(medians, key=lambda name: medians[name])
            outcome = Outcome.FINISHED if kind == "tune" else Outcome.INTERRUPTED
            tuned(stores[one], best, medians, outcome=outcome)
    return stores


@pytest.mark.slow
@given(STEPS)
def test_no_order_of_merging_gives_another_pick(steps: list[Step]) -> None:
    stores = history(steps)
    found = set()
    for order in itertools.permutations(stores):
        receiver = MemoryStore()
        for store in order:
            receiver.merge(store)
        pick = receiver.pick(WORKLOAD.id)
        found.add(pick and (shown(receiver), frozenset(contested(receiver))))
    assert len(found) == 1


@pytest.mark.medium
@given(STEPS)
def test_what_is_contested_does_not_depend_on_who_receives(steps: list[Step]) -> None:
    one, two, _ = history(steps)
    three = MemoryStore()
    three.merge(one)  # before it learns of the other
    one.merge(two)
    two.merge(three)
    if one.pick(WORKLOAD.id) is not None:
        assert contested(one) == contested(two)


@pytest.mark.medium
@given(STEPS)
def test_merging_again_changes_nothing(steps: list[Step]) -> None:
    one, two, _ = history(steps)
    one.merge(two)
    before = one.pick(WORKLOAD.id), one.runs(WORKLOAD.id)
    one.merge(two)
    assert (one.pick(WORKLOAD.id), one.runs(WORKLOAD.id)) == before


def disagreeing() -> tuple[Store, Store]:
    one, two = MemoryStore(), MemoryStore()
    tuned(one, "a", {"a": 10.0, "b": 16.0})
    tuned(two, "b", {"a": 40.0, "b": 30.0})
    return one, two


def test_samples_that_a_later_run_wrote_down_again_are_no_occasion_of_its_own() -> None:
    """It is known that b lost against a in the first store, but not that both were measured then:
    a was measured in the second run, and b in the first."""
    one, two = MemoryStore(), MemoryStore()
    tuned(one, "b", {"b": 16.0, "c": 20.0})
    run = tuned(one, "a", {"a": 10.0})
    old = one.trials(WORKLOAD.id)[0]
    assert old.config["BM"] == "b"
    again = old.superseded_by(status=Status.OUTRACED, run_id=run.id, created=run.started)
    one.append([again])
    tuned(two, "a", {"a": 30.0, "b": 40.0})
    tuned(two, "b", {"b": 30.0})
    one.merge(two)
    assert contested(one) == {"a", "b"}


@pytest.mark.parametrize("best_only", [False, True])
def test_a_bundle_of_a_contested_pick_is_contested(tmp_path: Path, best_only: bool) -> None:
    one, two = disagreeing()
    two.merge(one)
    write_bundle(tmp_path / "b.whet", two, best_only=best_only)
    with open_bundle(tmp_path / "b.whet") as bundle:
        bundle.check()
        assert (shown(bundle.store), contested(bundle.store)) == ("b", {"a", "b"})
        (summary,) = bundle.store.workloads()
        assert [rival.config["BM"] for rival in summary.rivals] == ["a"]


def test_unpacking_a_bundle_is_a_merge(tmp_path: Path) -> None:
    one, two = disagreeing()
    write_bundle(tmp_path / "b.whet", two)
    with open_bundle(tmp_path / "b.whet") as bundle:
        (named,) = unpack_bundle(bundle, one).merged.picks
    assert [rival.config["BM"] for rival in named.now.rivals] == ["b"]
    assert (shown(one), contested(one)) == ("a", {"a", "b"})


def test_what_was_tuned_over_a_bundle_has_settled_it(tmp_path: Path) -> None:
    one, two = disagreeing()
    one.merge(two)
    write_bundle(tmp_path / "b.whet", one)
    with open_bundle(tmp_path / "b.whet") as bundle:
        own = MemoryStore()
        over = OverlayStore(own, bundle.store)
        assert contested(over) == {"a", "b"}
        tuned(over, "b", {"a": 11.0, "b": 10.0})
        assert (shown(over), contested(over)) == ("b", set())
        assert unpack_bundle(bundle, own).merged.picks == ()
    assert (shown(own), contested(own)) == ("b", set())


def make_version_5(path: Path, *runs: Run) -> None:
    """A store as 0.1 left it: no table of picks, and runs that say nothing of other stores."""
    with SqliteStore(path) as store:
        for run in runs:
            store.save_run(run)
            assert run.best is not None
            trial = a_trial(WORKLOAD, dict(run.best), run_id=run.id, created=run.started)
            store.append([trial])
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE picks")
        db.execute("UPDATE runs SET body = json_remove(body, '$.after', '$.taken')")
        db.execute("PRAGMA user_version = 5")
        db.commit()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_of_version_5_has_its_newest_pick_and_can_be_swept(
    tmp_path: Path, read_only: bool
) -> None:
    path = tmp_path / "old.db"
    make_version_5(
        path, a_run(WORKLOAD, {"BM": "a"}, started=1.0), a_run(WORKLOAD, {"BM": "b"}, started=2.0)
    )
    with open_store(path, read_only=read_only) as store:
        assert (shown(store), contested(store)) == ("b", set())
        assert store.gc(superseded=True, max_bytes=1, dry_run=True).workloads == 1


def test_stores_of_version_5_are_merged_by_the_same_rule(tmp_path: Path) -> None:
    first = a_run(WORKLOAD, {"BM": "a"}, started=1.0)
    make_version_5(tmp_path / "a.db", first, a_run(WORKLOAD, {"BM": "b"}, started=2.0))
    make_version_5(tmp_path / "c.db", a_run(WORKLOAD, {"BM": "c"}, started=3.0))
    with open_store(tmp_path / "a.db") as mine:
        with open_store(tmp_path / "c.db", read_only=True) as theirs:
            mine.merge(theirs)
        assert (shown(mine), contested(mine)) == ("b", {"b", "c"})
    with open_store(tmp_path / "a.db", read_only=True) as again:
        assert contested(again) == {"b", "c"}


def test_a_store_opened_before_it_was_upgraded_sees_what_is_contested(tmp_path: Path) -> None:
    make_version_5(tmp_path / "a.db", a_run(WORKLOAD, {"BM": "a"}, started=1.0))
    with open_store(tmp_path / "a.db", read_only=True) as early:
        assert contested(early) == set()
        with open_store(tmp_path / "a.db") as store:
            store.merge(disagreeing()[1])
        assert contested(early) == {"a", "b"}
