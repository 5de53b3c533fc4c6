"""What the page is told of a workload: importance, searches, frontier, comparison, runs, trials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from explorer_samples import fill, hostile, trial, workload
from whet.core.config import Config
from whet.core.miss import Miss
from whet.core.run import Run
from whet.core.status import Status
from whet.core.timeline import Span, Timeline
from whet.explorer.answers import (
    LINES,
    Knobs,
    facts_json,
    frontier_json,
    run_json,
    runs_json,
    simulated_json,
    strategies_json,
    timeline_json,
    trial_json,
)
from whet.explorer.columns import TrialColumns
from whet.explorer.importance import importance
from whet.explorer.library import Library, StorePlace
from whet.explorer.subject import AbsentError, NotThereError, Roofline, Subject, product_text
from whet.replay import Table, read_table
from whet.search import STRATEGIES
from whet.store import SqliteStore
from whet.store.scanning import rows_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "s.db") as opened:
        yield opened


@pytest.fixture
def subject(store: SqliteStore) -> Subject:
    """A workload of which every config was tried."""
    fill(store)
    return Library(store).subjects()[0]


@pytest.fixture(scope="module")
def table() -> Table:
    return read_table("h200-gemm-576")


def test_the_parameter_that_makes_the_difference_is_the_most_important() -> None:
    rng = np.random.default_rng(1)
    of, columns = workload(), TrialColumns()
    made = []
    for tile, warps, n in product((1, 2, 4), (4, 8), range(30)):
        ns = 1e4 * tile * (1.2 if warps == 8 else 1.0) * rng.uniform(0.95, 1.05)
        made.append(trial(of, {"tile": tile, "warps": warps, "n": n}, ns))
    columns.extend(rows_of(made))
    found = importance(columns)
    assert [one["parameter"] for one in found] == ["tile", "warps", "n"]
    assert found[0]["share"] > 0.9
    assert found[0]["low"] <= found[0]["share"] <= found[0]["high"]
    assert found[2]["share"] < 0.05
    values = {one["value"]: one for one in found[0]["values"]}
    assert list(values) == [1, 2, 4]
    assert values[1]["best_ns"] < values[2]["best_ns"] < values[4]["best_ns"]
    assert sum(one["tried"] for one in values.values()) == 180


def test_no_parameter_explains_less_with_others_than_alone() -> None:
    # Of a third of all pairs the two estimates differ, here by four hundredths the wrong way.
    rng = np.random.default_rng(23)
    of, columns = workload(), TrialColumns()
    pairs = [(a, b) for a, b in product(range(3), range(30)) if rng.random() < 0.35]
    made = [
        trial(of, {"a": a, "b": b}, 1e6 * np.exp(a + 0.3 * rng.standard_normal())) for a, b in pairs
    ]
    columns.extend(rows_of(made))
    found = importance(columns)
    assert found[0]["total"] == found[0]["share"] > 0.8
    shown = [one["total"] or one["share"] for one in found]
    assert shown == sorted(shown, reverse=True)


def test_of_too_few_trials_nothing_is_said_of_importance(store: SqliteStore) -> None:
    hostile(store)
    assert importance(Library(store).subjects()[0].read().columns) == []


def test_a_config_counts_once_by_its_latest_outcome(store: SqliteStore) -> None:
    run = fill(store)
    again = trial(run.workload, {"BM": 32, "BN": 32, "num_warps": 4}, 5e4, status=Status.OUTRACED)
    store.append([again])
    (told,) = Library(store).summaries()
    assert told["trials"] == {"ok": 29, "outraced": 1, "resources": 2}
    assert told["configs"] == sum(told["trials"].values()) == 32
    assert told["rows"] == 33


def test_a_speed_up_is_the_one_of_the_duel(store: SqliteStore) -> None:
    run = fill(store)
    (told,) = Library(store).summaries()
    assert told["speedup"] == pytest.approx(told["first"]["ns"] / told["best"]["ns"])
    assert told["paired"] is False
    store.save_run(replace(run, paired_speedup=6.15))
    (told,) = Library(store).summaries()
    assert told["speedup"] == 6.15
    assert told["paired"] is True


def test_a_duel_of_a_config_that_is_no_longer_the_best_says_nothing(store: SqliteStore) -> None:
    run = fill(store)
    store.save_run(replace(run, paired_speedup=6.15))
    later = replace(
        run, id="later", started=run.started + 9, best=Config(BM=128, BN=64, num_warps=4)
    )
    store.save_run(later)
    (told,) = Library(store).summaries()
    assert told["best"]["config"]["BN"] == 64
    assert told["speedup"] == pytest.approx(told["first"]["ns"] / told["best"]["ns"])
    assert told["paired"] is False


class _CountingStore(SqliteStore):
    asked: list[str]

    def runs(self, workload_id: str) -> list[Run]:
        self.asked.append(workload_id)
        return super().runs(workload_id)


@pytest.mark.medium
def test_a_trial_of_one_workload_leaves_the_others_unread(tmp_path: Path) -> None:
    with _CountingStore(tmp_path / "s.db") as store:
        store.asked = []
        for n in range(5):
            fill(store, workload(N=n))
        library = Library(store)
        before = {one["id"]: one for one in library.summaries()}
        store.asked.clear()
        of = workload(N=3)
        store.append([trial(of, {"BM": 1, "BN": 1, "num_warps": 4}, 1.0)])
        after = {one["id"]: one for one in library.summaries()}
        assert set(store.asked) == {of.id}
    assert after[of.id]["configs"] == after[of.id]["trials"]["ok"] + 2 == 33
    assert {id for id in after if after[id] != before[id]} == {of.id}


def test_failures_are_counted_by_value(subject: Subject) -> None:
    found = {one["parameter"]: one for one in importance(subject.read().columns)}
    assert [one["failed"] for one in found["BM"]["values"]] == [0, 0, 0, 2]


@pytest.mark.medium
def test_every_strategy_walks_over_a_table_by_its_rows(table: Table) -> None:
    library = Library(None, {"gemm": table})
    subject = library.subjects()[3]
    assert [one["name"] for one in strategies_json()] == list(STRATEGIES) == list(LINES)
    for name in ("grid", "random", "gp", "auto"):
        told = simulated_json(subject, name, 1, 30)
        assert told["line"]
        assert len(told["rows"]) == len(set(told["rows"])) == len(told["seconds"]) == 30
        assert told["seconds"] == sorted(told["seconds"])
        best = [ns for ns in told["best_ns"] if ns is not None]
        assert set(best) <= set(map(float, table.workloads[3].medians))
    assert simulated_json(subject, "grid", 1, 5)["rows"] == [0, 1, 2, 3, 4]


def test_a_search_can_be_simulated_on_what_a_store_knows(store: SqliteStore) -> None:
    run = fill(store)
    subject = Library(store).subjects()[0]
    told = simulated_json(subject, "random", 0, 100)
    assert sorted(told["rows"]) == list(range(32))
    best = store.best(run.workload.id)
    assert best is not None
    assert told["best_ns"][-1] == pytest.approx(best.median_ns, rel=1e-3)


def test_a_search_that_cannot_be_says_why(subject: Subject) -> None:
    with pytest.raises(NotThereError, match="no strategy 'girds'; did you mean 'grid'"):
        simulated_json(subject, "girds", 0, 10)
    with pytest.raises(NotThereError, match="from 1 to"):
        simulated_json(subject, "grid", 0, 10**6)


def test_a_run_is_replayed_in_the_order_it_took(store: SqliteStore) -> None:
    run = fill(store)
    told = run_json(Library(store).subjects()[0], run.id)
    assert told["rows"] == list(range(32))
    assert told["strategy"] == "grid"
    best = [ns for ns in told["best_ns"] if ns is not None]
    assert best == sorted(best, reverse=True)


def test_runs_tell_what_they_spent_and_their_timelines_what_when(store: SqliteStore) -> None:
    run = fill(store)
    subject = Library(store).subjects()[0]
    assert [one["id"] for one in runs_json(subject)] == [run.id]
    assert runs_json(subject)[0]["outcome"] == "finished"
    absent = timeline_json(subject, run.id)
    assert "timeline" in absent["absent"]
    assert absent["wall"] == {"measure": 3.0, "waiting": 1.0}
    assert run.best is not None
    spans = (Span("device", "measure", 1.0, 0.5, run.best.id), Span("worker 1", "build", 0.0, 1.0))
    store.save_timeline(run.id, Timeline(spans))
    told = timeline_json(subject, run.id)
    assert "absent" not in told
    assert [(one["lane"], one["start_s"], one["end_s"]) for one in told["spans"]] == [
        ("worker 1", 0.0, 1.0),
        ("device", 1.0, 1.5),
    ]
    assert told["spans"][1]["status"] == "ok"
    assert trial_json(subject, told["spans"][1]["row"])["config"] == dict(run.best)
    assert told["phases"] == {"build": 16.0, "measure": 8.0}
    assert told["stages"] == {"build.llir": 6.0}
    assert told["stock"]["benchmarks"] == 30


def test_a_trial_is_told_whole(subject: Subject) -> None:
    told = trial_json(subject, 0)
    assert told["config"] == {"BM": 32, "BN": 32, "num_warps": 4}
    assert len(told["samples"]) == told["samples_total"] == 12
    assert told["low_ns"] < told["median_ns"] < told["high_ns"]
    assert told["registers"] == 128
    # 128 registers × 4 warps and 64 KiB: of the 228 KiB and 64 warps of sm_90, three blocks.
    assert told["occupancy"] == pytest.approx(12 / 64)
    failed = trial_json(subject, 31)
    assert failed["error"] == "out of resource: shared memory\nRequired: 262144"
    assert failed["occupancy"] is None
    with pytest.raises(NotThereError, match="there is no row 99; the store has 32 rows"):
        subject.trial(99)


@pytest.mark.slow
def test_a_frontier_has_more_speed_for_more_time(table: Table) -> None:
    subject = Library(None, {"gemm": table}).subjects()[0]
    knobs = Knobs(draws=20, runs=4, searches=("random",), racing=True)
    told = frontier_json(subject, knobs)
    names = [one["name"] for one in told["series"]]
    assert names[:2] == ["sequential", "parallel compilation (16×)"]
    assert {"racing", "random"} <= set(names)
    for one in told["series"]:
        picked = [(one["seconds"][row], one["fraction"][row]) for row in one["frontier"]]
        assert picked == sorted(picked)
        assert [fraction for _, fraction in picked] == sorted(fraction for _, fraction in picked)
    other = frontier_json(subject, replace(knobs, all_keys=True))
    assert other["series"] != told["series"]
    assert [one["name"] for one in other["series"]] == names
    with pytest.raises(NotThereError, match="draws must be from 2"):
        frontier_json(subject, Knobs(draws=10**9))


def test_a_store_where_nothing_works_has_no_frontier(store: SqliteStore) -> None:
    of = workload()
    store.put_workload(of)
    store.append([trial(of, {"a": 1}, status=Status.BUILD_ERROR, error="no")])
    with pytest.raises(AbsentError, match="no config works"):
        frontier_json(Library(store).subjects()[0], Knobs())


def test_numbers_of_builds_are_told_by_row_where_they_differ(store: SqliteStore) -> None:
    of = workload()
    store.put_workload(of)
    store.append([trial(of, {"v": 0}, status=Status.BUILD_ERROR, error="no")])
    built = {"spills": 0, "kind": "text", "quiet": True}
    store.append([trial(of, {"v": v}, 100.0 * v, registers=32 * v, **built) for v in (1, 2)])
    assert facts_json(Library(store).subjects()[0]) == {"registers": [None, 32, 64]}


def test_the_roofline_is_the_slower_of_computing_and_moving() -> None:
    known = Roofline.of(workload("matmul_kernel"))
    assert known.flops == 2.0 * 512**3
    assert known.bytes == 2.0 * 3 * 512**2
    assert known.ns == pytest.approx(1e9 * 2 * 3 * 512**2 / 4.8e12)
    big = Roofline.of(workload("gemm", M=8192, N=8192, K=8192, **{"a.dtype": "torch.float16"}))
    assert big.ns == pytest.approx(1e9 * 2 * 8192**3 / 989e12)
    assert Roofline.of(workload("softmax", M=8, N=8, K=8)).flops is None
    assert Roofline.of(workload("matmul", device="unheard of")).ns is None


def test_a_workload_is_summed_up(store: SqliteStore) -> None:
    run = fill(store)
    library = Library(store)
    library.subjects()[0].read()
    (line,) = library.summaries()
    assert run.best is not None
    assert line["best"]["config"] == dict(run.best)
    assert line["best"]["low_ns"] < line["best"]["ns"] < line["best"]["high_ns"]
    assert line["speedup"] == pytest.approx(line["first"]["ns"] / line["best"]["ns"])
    assert line["trials"] == {"ok": 30, "resources": 2}
    assert line["space_product"] == "4×4×2 = 32"
    assert line["cost_s"] == 4.0
    assert line["exact"] is True


def test_a_key_that_was_missed_says_whose_result_it_inherits(store: SqliteStore) -> None:
    run = fill(store)
    store.miss(Miss(workload(M=1024, N=512, K=512), at=5.0))
    lines = Library(store).summaries()
    assert [line["exact"] for line in lines] == [True, {"inherited_from": run.workload.id}]


@pytest.mark.medium
def test_tables_have_a_line_for_every_key(table: Table) -> None:
    library = Library(None, {"gemm": table})
    lines = library.summaries()
    assert len(lines) == 64 == len({line["id"] for line in lines})
    assert lines[0]["space_product"] == "4×4×3×3×4 = 576"
    assert all(line["roofline_ns"] < line["best"]["ns"] for line in lines)
    assert sum(lines[0]["trials"].values()) == 576


def test_a_product_is_shown_only_where_the_space_is_one() -> None:
    assert product_text([4, 1, 3], 12) == "4×3 = 12"
    assert product_text([4, 3], 11) is None
    assert product_text([], 0) is None


def test_a_store_that_appears_later_is_found(tmp_path: Path) -> None:
    place = StorePlace(str(tmp_path / "later.db"))
    library = Library(place)
    assert library.summaries() == []
    with SqliteStore(tmp_path / "later.db") as store:
        run = fill(store)
    assert [line["id"] for line in library.summaries()] == [run.workload.id]
    assert library.subject(run.workload.id).read().columns.rows == 32
    with pytest.raises(NotThereError, match="there is no workload 'x'"):
        library.subject("x")


def test_columns_that_nobody_looks_at_any_more_give_way(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.explorer.library.MOST_ROWS", 40)
    ids = [
        fill(store, workload(M=size, N=8, K=8), started=size).workload.id for size in (8, 16, 32)
    ]
    library = Library(store)
    for id in ids:
        assert library.subject(id).read().columns.rows == 32
    library.subject(ids[-1])
    assert [library._stored[id].loaded_rows for id in ids] == [0, 0, 32]
