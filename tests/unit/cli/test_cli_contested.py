"""What the commands say of picks on which stores that were merged disagree."""

from __future__ import annotations

import json

import pytest

from cli_runs import Whet
from whet.store import open_store
from whet.testing.samples import a_trial, a_workload
from whet.testing.store_kit import tuned
from whet.testing.store_kit_base import WORKLOAD


@pytest.fixture(autouse=True)
def _two_stores() -> None:
    with open_store("idle.db") as idle, open_store("busy.db") as busy:
        tuned(idle, "a", {"a": 10.0, "b": 16.0})
        tuned(busy, "b", {"a": 40.0, "b": 30.0})


@pytest.fixture
def merged(whet: Whet) -> str:
    assert whet("store", "merge", "busy.db", "--store", "idle.db").code == 0
    return "idle.db"


@pytest.mark.medium
def test_merge_names_what_is_contested_and_the_remedy(whet: Whet) -> None:
    ran = whet("store", "merge", "busy.db", "--store", "idle.db")
    assert "contested: matmul(" in ran.out
    text = " ".join(ran.out.split())
    assert "[BM=a] stays, but [BM=b]" in text
    assert "tune it" in text
    assert ran.widest <= 80


@pytest.mark.medium
def test_merge_names_a_pick_that_changes(whet: Whet) -> None:
    with open_store("idle.db") as idle, open_store("later.db") as later:
        later.merge(idle)
        tuned(later, "c", {"a": 10.0, "c": 8.0})
    ran = whet("store", "merge", "later.db", "--store", "idle.db")
    assert "[BM=a] -> [BM=c]" in " ".join(ran.out.split())
    assert "contested" not in ran.out


@pytest.mark.medium
def test_merge_without_either_says_nothing_of_picks(whet: Whet) -> None:
    ran = whet("store", "merge", "busy.db", "--store", "new.db")
    assert "pick" not in ran.out
    assert "contested" not in ran.out


@pytest.mark.medium
def test_merge_tells_machines_too(whet: Whet) -> None:
    told = json.loads(whet("store", "merge", "busy.db", "--store", "idle.db", "--json").out)
    (merged,) = told["merged"]
    assert merged["new"] == {"workloads": 0, "trials": 2, "runs": 1}
    (pick,) = merged["picks"]
    assert (pick["before"], pick["now"]) == ({"BM": "a"}, {"BM": "a"})
    assert (pick["changed"], pick["contested"]) == (False, [{"BM": "b"}])


@pytest.mark.medium
def test_best_shows_the_other_pick(whet: Whet, merged: str) -> None:
    ran = whet("best", "--store", merged)
    assert "BM=a" in ran.out
    assert "contested" in ran.out
    assert "[BM=b] 30.0 ns" in ran.out
    assert "tuning run of" in ran.out
    (best,) = json.loads(whet("best", "--store", merged, "--json").out)["best"]
    assert best["config"] == {"BM": "a"}
    assert best["contested"] == [{"config": {"BM": "b"}, "median_ns": 30.0}]


def test_best_of_several_marks_the_contested_one(whet: Whet, merged: str) -> None:
    other = a_workload(kernel="softmax")
    with open_store(merged) as store:
        store.put_workload(other)
        store.append([a_trial(other, {"BN": 8})])
    lines = whet("best", "--store", merged).out.splitlines()
    assert next(line.endswith("BM=a (contested)") for line in lines if "matmul" in line)
    assert not [line for line in lines if "softmax" in line and "contested" in line]
    assert any("[BM=a] or [BM=b]" in line for line in lines)


@pytest.mark.medium
def test_the_listing_shows_what_is_contested(whet: Whet, merged: str) -> None:
    assert "[BM=a] or [BM=b]" in whet("store", "stats", "--list", "--store", merged).out
    (one,) = json.loads(whet("store", "stats", "--list", "--store", merged, "--json").out)[
        "workloads"
    ]
    assert one["contested"] == [{"BM": "b"}]


@pytest.mark.medium
def test_diff_shows_what_is_contested(whet: Whet, merged: str) -> None:
    assert "contested in B" in whet("store", "diff", "busy.db", merged).out
    (one,) = json.loads(whet("store", "diff", "busy.db", merged, "--json").out)["workloads"]
    assert (one["a"]["contested"], one["b"]["contested"]) == ([], [{"BM": "b"}])


@pytest.mark.medium
def test_unpack_names_what_is_contested(whet: Whet) -> None:
    whet("pack", "busy.whet", "--store", "busy.db")
    ran = whet("store", "merge", "busy.whet", "--store", "idle.db")
    assert "[BM=a] stays" in " ".join(ran.out.split())
    told = json.loads(whet("store", "merge", "busy.whet", "--store", "idle.db", "--json").out)
    assert told["merged"][0]["picks"][0]["contested"] == [{"BM": "b"}]


@pytest.mark.medium
def test_gc_leaves_both_picks(whet: Whet, merged: str) -> None:
    whet("store", "gc", "--superseded", "--store", merged)
    with open_store(merged, read_only=True) as store:
        pick = store.pick(WORKLOAD.id)
    assert pick is not None
    assert pick.trial.median_ns == 10.0
    assert [rival.median_ns for rival in pick.rivals] == [30.0]
