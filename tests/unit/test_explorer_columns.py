"""Trials as columns: what the page reads is what was stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from explorer_samples import HOSTILE, decoded, fill, hostile, trial, workload
from whet.core.status import Status
from whet.explorer.columns import (
    LONGEST_ERROR,
    LatestRows,
    TrialColumns,
    ValueCodes,
    number_of,
    numbers_of,
)
from whet.explorer.stored import FIRST_BATCH, StoreSubject
from whet.store import MemoryStore, SqliteStore, Store
from whet.store.scanning import rows_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "s.db") as opened:
        yield opened


def _subject(store: Store, at: int = 0) -> StoreSubject:
    return StoreSubject(store, store.workloads()[at])


def test_every_trial_is_a_row_with_its_config_its_outcome_and_its_time(store: SqliteStore) -> None:
    run = fill(store)
    header, arrays = decoded(_subject(store).encoded(0))
    trials = store.trials(run.workload.id, all=True)
    assert header["rows"] == header["total_rows"] == len(trials) == 32
    assert header["complete"] is True
    values = {one["name"]: one["values"] for one in header["parameters"]}
    assert values == {"BM": [32, 64, 128, 256], "BN": [32, 64, 128, 256], "num_warps": [4, 8]}
    for row, stored in enumerate(trials):
        config = {name: values[name][arrays[f"p:{name}"][row]] for name in values}
        assert config == dict(stored.config)
        assert header["statuses"][arrays["status"][row]] == stored.status
        assert header["runs"][arrays["run"][row]] == run.id
        assert arrays["cost_s"][row] == pytest.approx(0.75)  # a stage is part of its phase
        assert arrays["build_s"][row] == 0.5
        assert arrays["at_s"][row] == pytest.approx(0.1 * (row + 1), rel=1e-4)
        if stored.timing is None:
            assert np.isnan(arrays["median_ns"][row])
            assert header["errors"][arrays["error"][row]] == "out of resource: shared memory"
        else:
            interval = stored.timing.interval_ns
            assert interval is not None
            assert arrays["median_ns"][row] == pytest.approx(stored.median_ns, rel=1e-6)
            assert arrays["low_ns"][row] == pytest.approx(interval[0], rel=1e-6)
            assert arrays["high_ns"][row] == pytest.approx(interval[1], rel=1e-6)


@pytest.mark.medium
def test_a_run_that_is_watched_for_long_does_not_come_to_pieces(store: SqliteStore) -> None:
    of = workload()
    store.put_workload(of)
    subject = _subject(store)
    for number in range(300):
        store.append([trial(of, {"n": number, **({"late": 1} if number > 200 else {})}, 100.0)])
        subject.encoded(number)
    columns = subject.read().columns
    _, arrays = decoded(subject.encoded(0))
    fresh = decoded(_subject(store).encoded(0))[1]
    assert len(columns.chunks) <= 3
    assert columns.rows == 300
    for name, values in fresh.items():
        np.testing.assert_array_equal(arrays[name], values)


@pytest.mark.medium
def test_the_first_answer_waits_for_the_first_batch_alone(store: SqliteStore) -> None:
    of = workload()
    store.put_workload(of)
    store.append(trial(of, {"n": n}, 100.0, samples=1) for n in range(FIRST_BATCH + 10))
    subject = _subject(store)
    header, _ = decoded(subject.encoded(0))
    assert (header["rows"], header["complete"]) == (FIRST_BATCH, False)
    assert header["total_rows"] == FIRST_BATCH + 10
    rest, _ = decoded(subject.encoded(FIRST_BATCH))
    assert (rest["rows"], rest["complete"]) == (10, True)


def test_the_best_the_first_and_the_equals_are_named_by_row(store: SqliteStore) -> None:
    run = fill(store)
    header, _ = decoded(_subject(store).encoded(0))
    configs = [trial.config for trial in store.trials(run.workload.id, all=True)]
    assert run.best is not None
    assert run.first is not None
    assert header["best_row"] == configs.index(run.best)
    assert header["first_row"] == configs.index(run.first)
    assert header["equal_rows"] == [configs.index(run.equals[0])]


def test_rows_that_are_appended_come_alone_and_say_what_they_replace(store: SqliteStore) -> None:
    run = fill(store)
    subject = _subject(store)
    before, _ = decoded(subject.encoded(0))
    again = {"BM": 64, "BN": 64, "num_warps": 8}
    store.append([trial(run.workload, again, 5.0), trial(run.workload, {**again, "BM": 48}, 6.0)])
    header, arrays = decoded(subject.encoded(32))
    columns = subject.read().columns
    assert (header["first"], header["rows"], header["total_rows"]) == (32, 2, 34)
    assert header["epoch"] == before["epoch"]
    assert header["parameters"][0]["values"] == [32, 48, 64, 128, 256]
    row = [int(one) for one in arrays["replaces"]]
    assert row == [1 + 11, 0]
    assert not columns.standing()[11]
    assert columns.standing().sum() == 33


def test_a_store_that_lost_rows_is_read_anew(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.explorer.stored.CHECKED_S", -1.0)
    run = fill(store)
    store.append([trial(run.workload, {"BM": 64, "BN": 64, "num_warps": 8}, 5.0)])
    subject = _subject(store)
    before, _ = decoded(subject.encoded(0))
    store.gc(superseded=True)
    after, _ = decoded(subject.encoded(33))
    assert before["rows"] == 33
    assert (after["total_rows"], after["rows"]) == (32, 0)
    assert after["epoch"] != before["epoch"]


def test_numbers_text_and_truth_that_are_equal_in_python_stay_apart() -> None:
    codes = ValueCodes()
    column = [1, True, 1.0, "1", None, [1, 2], (1, 2), 2]
    found = codes.codes(column).tolist()
    assert found == [0, 1, 2, 3, 4, 5, 5, 6]
    assert codes.kind == "str"
    assert codes.shown() == [1, True, 1.0, "1", None, "1,2", 2]


def test_numbers_are_listed_in_order_and_what_is_missing_last() -> None:
    codes = ValueCodes()
    codes.codes([64, None, 16, 32])
    assert codes.kind == "int"
    assert codes.shown() == [16, 32, 64, None]
    assert codes.ranks().tolist() == [2, 3, 0, 1]


def test_a_number_that_a_browser_would_round_is_sent_as_text() -> None:
    codes = ValueCodes([2**60, 1])
    assert codes.kind == "str"
    assert codes.shown() == [str(2**60), 1]


def test_configs_need_not_have_the_same_parameters() -> None:
    of, columns = workload(), TrialColumns()
    columns.extend(rows_of([trial(of, {"a": 1}, 1.0)]))
    columns.extend(rows_of([trial(of, {"a": 2, "b": "x"}, 2.0)], marks=[2]))
    columns.extend(rows_of([trial(of, {"b": "y"}, 3.0)], marks=[3]))
    named = {name: codes.shown() for name, codes in columns.parameters.items()}
    rows = [
        {name: named[name][columns.column(f"p:{name}")[row]] for name in named} for row in range(3)
    ]
    assert rows == [{"a": 1, "b": None}, {"a": 2, "b": "x"}, {"a": None, "b": "y"}]


@pytest.mark.parametrize("in_memory", [True, False])
def test_hostile_text_travels_as_text(tmp_path: Path, in_memory: bool) -> None:
    store: Store = MemoryStore() if in_memory else SqliteStore(tmp_path / "s.db")
    with store:
        hostile(store)
        subject = _subject(store)
        header, arrays = decoded(subject.encoded(0))
        assert header["parameters"][0]["name"] == HOSTILE
        assert header["parameters"][0]["values"] == [HOSTILE, "plain"]
        shown = HOSTILE.splitlines()[0].strip()
        assert header["errors"][int(arrays["error"][1])] == shown[:LONGEST_ERROR]
        assert subject.summary()["kernel"] == HOSTILE


def test_what_was_outraced_is_no_error() -> None:
    columns = TrialColumns()
    slow = trial(workload(), {"a": 1}, 9.0, status=Status.OUTRACED, error="12 µs cannot beat 9 µs")
    columns.extend(rows_of([slow]))
    assert columns.errors.values == [""]


@pytest.mark.medium
def test_a_config_is_found_among_many_rows_whichever_way_they_are_kept() -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 30_000, size=60_000).astype(np.uint64)
    latest: dict[int, int] = {}
    wanted = []
    for row, number in enumerate(ids.tolist()):
        wanted.append(latest.get(number, -1) + 1)
        latest[number] = row
    grown = LatestRows()
    found = np.concatenate([grown.add(part) for part in np.array_split(ids, 7)])
    assert found.tolist() == wanted
    loaded = LatestRows.of(ids)
    for number in (int(ids[0]), int(ids[-1]), 31_000):
        assert grown.find(number) == loaded.find(number) == latest.get(number)
    assert loaded.add(ids[:3]).tolist() == [latest[int(number)] + 1 for number in ids[:3]]


def test_ids_that_are_no_hexadecimal_numbers_are_told_apart_too() -> None:
    ids = ["00000000000000ff", "not hexadecimal", "ff"]
    assert numbers_of(ids).tolist() == [number_of(id) for id in ids]
    assert number_of(ids[0]) == 255
    assert len({number_of(id) for id in ids}) == 3


def _for_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for hundreds of thousands, on a machine with two cores."""
    monkeypatch.setattr("whet.explorer.column_file.FEWEST_ROWS", 10)
    monkeypatch.setattr("whet.explorer.column_file.os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("whet.explorer.stored.FIRST_BATCH", 3)
    monkeypatch.setattr("whet.explorer.stored.BATCH", 8)
    monkeypatch.setattr("whet.explorer.stored.FIRST_PATIENCE_S", 0.0)


@pytest.mark.medium
def test_a_large_workload_is_read_by_two_processes_with_the_same_result(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second half has values, errors and runs that the first does not know, and replaces rows
    of the first."""
    monkeypatch.setattr("whet.explorer.column_file.due", lambda *_: False)  # or that is read
    run = fill(store)
    second = fill(store, started=9000.0)
    odd = {"BM": 16, "extra": "x"}
    failed = trial(run.workload, odd, status=Status.RUN_ERROR, error="only here")
    store.append([failed, trial(run.workload, {"BM": 48, "BN": 1, "num_warps": 4}, 5.0)])
    one, told = decoded(_subject(store).encoded(0))
    _for_few_rows(monkeypatch)
    subject = _subject(store)
    assert subject.read(0).columns.rows <= 34  # the first half at most
    assert subject.read().columns.rows == 66
    two, halves = decoded(subject.encoded(0))
    assert two["runs"] == [run.id, second.id, ""]
    assert {**one, "epoch": ""} == {**two, "epoch": ""}
    assert told.keys() == halves.keys()
    for name in told:
        assert np.array_equal(told[name], halves[name], equal_nan=told[name].dtype.kind == "f"), (
            name
        )


@pytest.mark.medium
def test_where_the_other_process_fails_everything_is_read_here(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _for_few_rows(monkeypatch)
    fill(store)
    for program in ("/bin/false", "/bin/true", "/nonexistent"):
        monkeypatch.setattr("whet.explorer.column_file.sys.executable", program)
        assert _subject(store).read().columns.rows == 32


def test_what_was_read_stays_as_it_was_while_more_is_appended(store: SqliteStore) -> None:
    run = fill(store)
    subject = _subject(store)
    before = subject.read().columns
    store.append([trial(run.workload, {"BM": 1, "BN": 1, "num_warps": 4}, 5.0)])
    assert subject.read().columns.rows == 33
    assert before.rows == len(before.column("status")) == 32
    assert before.parameters["BM"].shown() == [32, 64, 128, 256]
