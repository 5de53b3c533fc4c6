"""One's own store over another: own first, then the other; writes to one's own alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from whet.core.config import Config
from whet.core.errors import BundleError
from whet.core.status import Status
from whet.store import MemoryStore, OverlayStore, SqliteStore, Store, open_if_there, open_store
from whet.store.bundles.bundle import open_bundle
from whet.store.bundles.writing import write_bundle
from whet.store.merging import MergeReport
from whet.store.protocol import Match
from whet.testing.samples import a_run, a_trial, a_workload

WORKLOAD = a_workload()
NEAR, FAR = a_workload(key={"M": 64}), a_workload(key={"M": 4096})


@dataclass
class Layers:
    """`theirs` is packed when `store` is first asked for."""

    folder: Path
    own: Store
    theirs: Store

    @property
    def store(self) -> Store:
        write_bundle(self.folder / "b.whet", self.theirs)
        return OverlayStore(self.own, open_bundle(self.folder / "b.whet").store)


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[Layers]:
    with SqliteStore(tmp_path / "own.db") as own:
        for store in (own, theirs := MemoryStore()):
            store.put_workload(WORKLOAD)
        yield Layers(tmp_path, own, theirs)


def config(trial: object) -> Config | None:
    return getattr(trial, "config", None)


def test_what_only_the_other_knows_is_known(layers: Layers) -> None:
    trial, run = a_trial(WORKLOAD, {"BM": 1}), a_run(WORKLOAD, {"BM": 1})
    layers.theirs.append([trial])
    layers.theirs.save_run(run)
    store = layers.store
    assert store.best(WORKLOAD.id) == trial
    assert store.trials(WORKLOAD.id) == [trial]
    assert store.latest(WORKLOAD.id, trial.config.id) == trial
    assert store.runs(WORKLOAD.id) == [run]
    assert store.run(run.id) == run
    assert store.timeline(run.id) is None


def test_ones_own_trial_of_a_config_stands_whatever_the_dates(layers: Layers) -> None:
    own = a_trial(WORKLOAD, {"BM": 1}, created=1.0)
    layers.own.append([own])
    layers.theirs.append([a_trial(WORKLOAD, {"BM": 2}), a_trial(WORKLOAD, {"BM": 1}, created=2.0)])
    store = layers.store
    assert [config(trial) for trial in store.trials(WORKLOAD.id)] == [Config(BM=2), Config(BM=1)]
    assert store.trials(WORKLOAD.id)[1] == own
    assert store.latest(WORKLOAD.id, Config(BM=1).id) == own
    assert len(store.trials(WORKLOAD.id, all=True)) == 3


def test_a_trial_that_both_have_counts_once(layers: Layers) -> None:
    trial = a_trial(WORKLOAD)
    for store in (layers.own, layers.theirs):
        store.append([trial])
    assert layers.store.trials(WORKLOAD.id, all=True) == [trial]
    assert [one.trials for one in layers.store.workloads()] == [1]


def test_what_ones_own_run_chose_comes_before_a_later_choice_of_the_other(layers: Layers) -> None:
    for store, bm, started in ((layers.own, 1, 10.0), (layers.theirs, 2, 20.0)):
        store.append([a_trial(WORKLOAD, {"BM": bm}, 100.0 / bm)])
        store.save_run(a_run(WORKLOAD, {"BM": bm}, started=started))
    assert config(layers.store.best(WORKLOAD.id)) == Config(BM=1)
    assert [run.started for run in layers.store.runs(WORKLOAD.id)] == [10.0, 20.0]


def test_the_others_choice_comes_before_ones_own_unfinished_trials(layers: Layers) -> None:
    layers.own.append([a_trial(WORKLOAD, {"BM": 1}, 1.0)])
    layers.theirs.append([a_trial(WORKLOAD, {"BM": 2}, 5.0)])
    layers.theirs.save_run(a_run(WORKLOAD, {"BM": 2}))
    assert config(layers.store.best(WORKLOAD.id)) == Config(BM=2)


def test_the_others_choice_that_fails_here_is_not_the_best(layers: Layers) -> None:
    layers.own.append([a_trial(WORKLOAD, {"BM": 2}, status=Status.WRONG_RESULT)])
    layers.theirs.append([a_trial(WORKLOAD, {"BM": 1}, 9.0), a_trial(WORKLOAD, {"BM": 2}, 5.0)])
    layers.theirs.save_run(a_run(WORKLOAD, {"BM": 2}))
    assert config(layers.store.best(WORKLOAD.id)) == Config(BM=1)
    (summary,) = layers.store.workloads()
    assert (summary.trials, summary.configs, summary.ok) == (3, 2, 1)
    assert config(summary.best) == Config(BM=1)


@pytest.mark.parametrize("near_is_own", [True, False])
def test_the_nearest_of_both_is_the_loose_match(layers: Layers, near_is_own: bool) -> None:
    stores = (layers.own, layers.theirs) if near_is_own else (layers.theirs, layers.own)
    for workload, store in zip((NEAR, FAR), stores, strict=True):
        store.put_workload(workload)
        store.append([a_trial(workload)])
    assert layers.store.match(a_workload(key={"M": 65})) == Match("loose", NEAR, ("key",))


def test_an_exact_match_of_the_other_comes_before_a_loose_one_of_ones_own(layers: Layers) -> None:
    for workload, store in ((NEAR, layers.own), (FAR, layers.theirs)):
        store.put_workload(workload)
        store.append([a_trial(workload)])
    assert layers.store.match(FAR) == Match("strict", FAR)
    assert layers.store.match(NEAR) == Match("strict", NEAR)


def test_the_workloads_of_both_are_listed_the_most_recent_first(layers: Layers) -> None:
    for workload, store, at in ((NEAR, layers.own, 1.0), (FAR, layers.theirs, 2.0)):
        store.put_workload(workload)
        store.append([a_trial(workload, created=at)])
    listed = [one.workload for one in layers.store.workloads() if one.trials]
    assert listed == [FAR, NEAR]


def test_writes_go_to_ones_own_store_alone(layers: Layers) -> None:
    layers.theirs.append([a_trial(WORKLOAD, {"BM": 1})])
    store = layers.store
    before = (layers.folder / "b.whet").read_bytes()
    assert store.append([a_trial(WORKLOAD, {"BM": 2})]) == 1
    store.save_run(a_run(WORKLOAD, {"BM": 2}))
    assert config(store.best(WORKLOAD.id)) == Config(BM=2)
    assert len(layers.own.trials(WORKLOAD.id)) == 1
    assert store.gc(kernel="matmul").trials == 1
    assert config(store.best(WORKLOAD.id)) == Config(BM=1)
    assert (layers.folder / "b.whet").read_bytes() == before


def test_an_overlay_can_be_merged_into_a_store(layers: Layers) -> None:
    layers.own.append([a_trial(WORKLOAD, {"BM": 1})])
    layers.theirs.append([a_trial(WORKLOAD, {"BM": 2})])
    assert MemoryStore().merge(layers.store) == MergeReport(trials=2, runs=0, workloads=1)


def test_a_store_is_opened_over_a_bundle(tmp_path: Path, layers: Layers) -> None:
    layers.theirs.append([trial := a_trial(WORKLOAD)])
    write_bundle(tmp_path / "b.whet", layers.theirs)
    for store in (
        open_store(tmp_path / "own.db", bundle=tmp_path / "b.whet"),
        open_store(":memory:", bundle=str(tmp_path / "b.whet")),
        open_if_there(tmp_path / "none.db", bundle=tmp_path / "b.whet"),
    ):
        with store:
            assert store.best(WORKLOAD.id) == trial
    assert not (tmp_path / "none.db").exists()


def test_a_bundle_that_is_refused_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"nowhere\.whet"):
        open_store(tmp_path / "own.db", bundle=tmp_path / "nowhere.whet")
    assert list(tmp_path.iterdir()) == []
