"""A store's trials in columns: the same from a file as from memory."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer_samples import HOSTILE, fill, hostile, trial, workload
from whet.core.errors import StoreError
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.timing import Summary, Timing
from whet.core.trial import Cost, Trial
from whet.store import MemoryStore, OverlayStore, SqliteStore
from whet.store.scanning import (
    GrowthWatch,
    TrialRows,
    column_folder,
    file_state,
    scan,
    status_counts,
)

ODD: list[dict[str, Any]] = [
    {"a": 1, "b": "x,y"},
    {"a": 2, "b": 'quoted "text", with a comma'},
    {"a": 3, "b": HOSTILE},
    {"a": [1, 2], "b": None},
    {"b": True, "a": 1.5},
    {"c": "only"},
]


def _odd_trials() -> list[Trial]:
    of = workload()
    made = [trial(of, config, 100.0 + n, samples=n + 3) for n, config in enumerate(ODD)]
    foreign = Timing((), "theirs", foreign=Summary(5.0, 4.0, 6.0, "theirs"))
    costs = Cost(FrozenMap({'od"d': 1.0, "build.stage": 5.0, "build": 1e-7}))
    made.append(Trial(of.id, made[0].config.replace(a=9), Status.OK, foreign, costs))
    return made


def _everything(rows: TrialRows) -> dict[str, Any]:
    return {
        "ids": list(rows.config_ids),
        "statuses": list(rows.statuses),
        "times": [[None if np.isnan(x) else x for x in row] for row in _times(rows)],
        "values": {name: [_plain(one) for one in column] for name, column in rows.values.items()},
        "errors": list(rows.errors),
        "created": list(rows.created),
    }


def _times(rows: TrialRows) -> list[list[float]]:
    columns = (rows.median_ns, rows.low_ns, rows.high_ns, rows.cost_s, rows.build_s)
    return np.stack(columns).T.tolist()


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_a_file_gives_what_memory_gives_of_odd_configs_and_costs(tmp_path: Path) -> None:
    of, trials = workload(), _odd_trials()
    with SqliteStore(tmp_path / "s.db") as file, MemoryStore() as memory:
        for store in (file, memory):
            store.put_workload(of)
            store.append(trials)
        found = scan(file, of.id).rows(0, 100)
        assert _everything(found) == _everything(scan(memory, of.id).rows(0, 100))
    assert found.values["a"][5] is None
    assert (found.low_ns[-1], found.high_ns[-1]) == (4.0, 6.0)
    assert found.cost_s[-1] == pytest.approx(1.0000001)


def test_it_goes_on_after_a_mark_and_names_each_trial(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as store:
        run = fill(store)
        found = scan(store, run.workload.id)
        first, rest = found.rows(0, 10), found.rows(found.rows(0, 10).marks[-1], 100)
        trials = store.trials(run.workload.id, all=True)
        assert (len(first), len(rest), found.count()) == (10, 22, 32)
        assert found.count(first.marks[-1]) == 10
        assert [found.trial(mark) for mark in (*first.marks, *rest.marks)] == trials
        assert found.trial(10**6) is None


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SqliteStore(path) as store:
        run = fill(store)
        with sqlite3.connect(path) as db:
            db.execute("UPDATE trials SET config = '{' WHERE n = 3")
        with pytest.raises(StoreError, match="is damaged: a trial between rows 1 and 32"):
            scan(store, run.workload.id).rows(0, 100)


def test_growth_is_told_once_and_by_workload(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SqliteStore(path) as writer, SqliteStore(path, read_only=True) as reader:
        run = fill(writer)
        watch = GrowthWatch(reader)
        assert watch.changes() is None
        writer.append([trial(run.workload, {"BM": 1, "BN": 1, "num_warps": 1}, 5.0)])
        assert watch.changes() == {run.workload.id: 33}
        assert watch.changes() is None
        other = hostile(writer)
        assert watch.changes() == {other.id: 2}
        writer.save_run(run)
        assert watch.changes() == {}
        assert watch.changes() is None


def test_growth_in_memory_is_told_too() -> None:
    with MemoryStore() as store:
        watch = GrowthWatch(store)
        assert watch.changes() is None
        of = hostile(store)
        assert watch.changes() == {of.id: 2}
        assert watch.changes() is None


def test_statuses_are_counted_by_the_latest_trial(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as file, MemoryStore() as memory:
        for store in (file, memory):
            run = fill(store)
            config = {"BM": 64, "BN": 64, "num_warps": 8}
            store.append([trial(run.workload, config, 9.0, status=Status.OUTRACED)])
            counted = status_counts(store, store.workloads())
            assert counted == {run.workload.id: {"ok": 29, "outraced": 1, "resources": 2}}


def test_of_an_overlay_ones_own_file_is_read_where_the_bundle_has_nothing(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as own, MemoryStore() as under:
        run = fill(own)
        other = hostile(under)
        store = OverlayStore(own, under)
        assert scan(store, run.workload.id).count() == 32
        assert scan(store, other.id).count() == 2
        assert column_folder(store) == Path(f"{tmp_path / 's.db'}.columns")
        assert column_folder(under) is None


def test_growth_of_ones_own_store_over_a_bundle_is_told(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as own, MemoryStore() as under:
        other = hostile(under)
        store = OverlayStore(own, under)
        run = fill(own)
        watch = GrowthWatch(store)
        own.append([trial(run.workload, {"BM": 1, "BN": 1, "num_warps": 1}, 5.0)])
        assert watch.changes() == {run.workload.id: 33}
        own.put_workload(other)
        own.append([trial(other, {HOSTILE: "new", "n": 3}, 7.0)])
        assert watch.changes() == {other.id: 3}


def test_a_state_is_the_same_until_somebody_writes(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as store, MemoryStore() as memory:
        run = fill(store)
        while (before := file_state(store)) is None:  # what was just written is not settled
            time.sleep(0.01)
        assert file_state(store) == before
        store.append([trial(run.workload, {"BM": 1, "BN": 1, "num_warps": 1}, 5.0)])
        assert file_state(store) != before
        assert file_state(memory) is None
