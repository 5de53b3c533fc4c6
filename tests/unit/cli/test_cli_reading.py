"""`best`, `trials` and `store` on a store that other commands have filled."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from cli_runs import Whet, refused
from whet.core.config import Config
from whet.core.status import Status
from whet.core.workload import Device
from whet.store import open_store, store_place
from whet.testing.samples import a_run, a_trial, a_workload

MATMUL = a_workload()
LARGER = a_workload(key={"M": 4096, "N": 4096, "dtype": "f32"})
SOFTMAX = a_workload(kernel="softmax", key={"N": 512})
BROKEN = a_workload(kernel="broken", key={})

READING = [
    ("best",),
    ("show", "cost"),
    ("show", "trials", "matmul"),
    ("store", "stats", "--list"),
    ("store", "gc", "--superseded"),
]


@pytest.fixture
def filled() -> str:
    """A store with four workloads, one of which has nothing that works."""
    with open_store("filled.db") as store:
        for workload in (MATMUL, LARGER, SOFTMAX, BROKEN):
            store.put_workload(workload)
        store.append(
            [
                a_trial(MATMUL, {"BM": 16}, 4000.0, status=Status.OUTRACED),
                a_trial(MATMUL, {"BM": 64}, 9000.0),
                a_trial(MATMUL, {"BM": 64}, 1000.0),
                a_trial(MATMUL, {"BM": 32}, 2000.0, status=Status.OUTRACED),
                a_trial(
                    MATMUL,
                    {"BM": 0},
                    status=Status.BUILD_ERROR,
                    error="\nkernel.c:4:1: error: zero sized array\n  4 | float x[BM];",
                ),
                a_trial(MATMUL, {"BM": 1}, status=Status.RUN_TIMEOUT),
                a_trial(LARGER, {"BM": 128}, 5e6),
                a_trial(SOFTMAX, {"BN": 8}, 300.0),
                a_trial(BROKEN, {"X": 1}, status=Status.RUN_ERROR),
            ]
        )
        store.save_run(a_run(MATMUL, {"BM": 64}))
    return "filled.db"


@pytest.mark.parametrize("command", READING)
def test_without_a_store_that_is_said_and_none_is_made(
    whet: Whet, command: tuple[str, ...]
) -> None:
    ran = whet(*command)
    place = f"{os.environ['XDG_DATA_HOME']}/whet/store.db"
    assert ran.code == (0 if command[0] == "store" else 1)
    said = ran.out if command[0] == "store" else ran.err
    assert said.count("\n") == 1
    assert f"store at {place}" in said
    assert not Path(os.environ["XDG_DATA_HOME"]).exists()


@pytest.mark.parametrize(
    ("command", "key", "code"),
    [
        (("best",), "best", 1),
        (("show", "trials", "x"), "workloads", 1),
        (("show", "cost"), "keys", 1),
        (("store", "stats", "--list"), "workloads", 0),
    ],
)
def test_without_a_store_json_is_still_json(
    whet: Whet, command: tuple[str, ...], key: str, code: int
) -> None:
    ran = whet(*command, "--json", "--store", "none.db")
    assert ran.code == code
    assert json.loads(ran.out)[key] == []
    assert not Path("none.db").exists()


def test_an_empty_store_knows_nothing(whet: Whet) -> None:
    open_store("empty.db").close()
    ran = whet("best", "--store", "empty.db")
    assert ran.code == 1
    assert "empty.db is empty" in ran.err


def test_best_of_everything_is_one_line_each(whet: Whet, filled: str) -> None:
    ran = whet("best", "--store", filled)
    lines = ran.out.splitlines()
    assert ran.code == 0
    assert len(lines) == 5
    assert any("matmul(M=512" in line and "BM=64" in line for line in lines)
    assert any("broken()" in line and "no working" in line for line in lines)
    assert ran.widest <= 80


def test_best_names_the_device_where_there_are_several(whet: Whet, filled: str) -> None:
    elsewhere = a_workload(device=Device("Other CPU", "cpu", "aarch64"))
    with open_store(filled) as store:
        store.put_workload(elsewhere)
        store.append([a_trial(elsewhere, {"BM": 7})])
    ran = whet("best", "matmul", "--store", filled)
    assert "Other CPU" in ran.out
    assert ran.widest <= 80


@pytest.mark.parametrize(("paired", "shown"), [(None, "4.00×"), (6.15, "6.15×")])
def test_best_says_the_speed_up_of_the_duel_where_there_was_one(
    whet: Whet, filled: str, paired: float | None, shown: str
) -> None:
    run = a_run(MATMUL, {"BM": 64}, first=Config(BM=16), paired_speedup=paired, started=9e9)
    with open_store(filled) as store:
        store.save_run(run)
    one = whet("best", MATMUL.id[:6], "--store", filled).out
    every = whet("best", "--store", filled)
    [told] = json.loads(whet("best", MATMUL.id[:6], "--store", filled, "--json").out)["best"]

    assert f"{shown} as fast" in one
    assert ("side by side" in one) == (paired is not None)
    assert shown in every.out
    assert every.widest <= 80
    assert told["speedup"] == pytest.approx(paired or 4.0)
    assert told["paired"] is (paired is not None)


@pytest.mark.medium
def test_best_of_one_workload_is_told_in_full(whet: Whet, filled: str) -> None:
    ran = whet("best", "softmax", "--store", filled)
    assert ran.code == 0
    assert "BN=8" in ran.out
    assert "300 ns (291 ns to 315 ns at 95 %, 7 samples)" in ran.out
    assert SOFTMAX.id in ran.out


def test_a_workload_is_found_by_how_its_id_starts(whet: Whet, filled: str) -> None:
    ran = whet("best", LARGER.id[:6], "--store", filled, "--json")
    [found] = json.loads(ran.out)["best"]
    assert found["workload"]["id"] == LARGER.id
    assert found["config"] == {"BM": 128}
    assert found["median_ns"] == pytest.approx(5e6)


def test_json_of_best_leaves_out_what_does_not_work(whet: Whet, filled: str) -> None:
    kernels = [
        entry["workload"]["kernel"]
        for entry in json.loads(whet("best", "--store", filled, "--json").out)["best"]
    ]
    assert sorted(kernels) == ["matmul", "matmul", "softmax"]


def test_best_of_what_does_not_work_is_an_error(whet: Whet, filled: str) -> None:
    ran = whet("best", "broken", "--store", filled)
    assert ran.code == 1
    assert "config of broken" in ran.err


@pytest.mark.parametrize("command", [("best",), ("show", "trials")])
def test_a_misspelt_kernel_gets_a_suggestion(
    whet: Whet, filled: str, command: tuple[str, ...]
) -> None:
    err = refused(whet(*command, "matmull", "--store", filled))
    assert "'matmull'" in err
    assert "mean 'matmul'?" in err


def test_trials_are_sorted_by_median_with_failures_after(whet: Whet, filled: str) -> None:
    ran = whet("show", "trials", MATMUL.id, "--store", filled)
    configs = [
        word for line in ran.out.splitlines() for word in line.split() if word.startswith("BM=")
    ]
    assert ran.code == 0
    assert configs == ["BM=64", "BM=32", "BM=16", "BM=0", "BM=1"]
    assert "kernel.c:4:1: error: zero sized array" in ran.out
    assert "float x[BM]" not in ran.out
    assert ran.widest <= 80


def test_trials_of_a_kernel_are_those_of_all_its_workloads(whet: Whet, filled: str) -> None:
    ran = whet("show", "trials", "matmul", "--store", filled)
    assert MATMUL.id in ran.out
    assert LARGER.id in ran.out


def test_trials_can_be_chosen_by_status(whet: Whet, filled: str) -> None:
    arguments = ("--status", "build_error", "--status", "run_timeout", "--json")
    ran = whet("show", "trials", MATMUL.id, "--store", filled, *arguments)
    [group] = json.loads(ran.out)["workloads"]
    assert [trial["status"] for trial in group["trials"]] == ["build_error", "run_timeout"]


def test_an_unknown_status_is_a_mistake_with_a_suggestion(whet: Whet, filled: str) -> None:
    assert "mean 'build_error'" in refused(
        whet("show", "trials", "matmul", "--store", filled, "--status", "build_eror")
    )


@pytest.mark.medium
def test_superseded_trials_are_shown_when_asked_for(whet: Whet, filled: str) -> None:
    def count(*more: str) -> int:
        ran = whet("show", "trials", MATMUL.id, "--store", filled, "--json", *more)
        return len(json.loads(ran.out)["workloads"][0]["trials"])

    assert (count(), count("--all")) == (5, 6)


def test_the_limit_holds_for_measured_and_failed_alike(whet: Whet, filled: str) -> None:
    ran = whet("show", "trials", MATMUL.id, "--store", filled, "--limit", "1")
    assert "BM=64" in ran.out
    assert "BM=0" in ran.out
    assert "BM=32" not in ran.out
    assert "3 more trials (--limit 0)" in ran.out


@pytest.mark.medium
def test_json_is_not_limited_unless_asked(whet: Whet) -> None:
    with open_store("many.db") as store:
        store.put_workload(MATMUL)
        store.append([a_trial(MATMUL, {"BM": bm}, bm) for bm in range(1, 101)])
    ran = whet("show", "trials", "matmul", "--store", "many.db", "--json")
    table = whet("show", "trials", "matmul", "--store", "many.db").out
    assert len(json.loads(ran.out)["workloads"][0]["trials"]) == 100
    assert "80 more trials" in table


def test_ls_counts_what_is_kept(whet: Whet, filled: str) -> None:
    ran = whet("store", "stats", "--list", "--store", filled)
    assert ran.code == 0
    assert "4 workloads" in ran.out
    assert ran.widest <= 80 or str(Path(filled).absolute()) in ran.out
    [row] = [line for line in ran.out.splitlines() if line.startswith(MATMUL.id[:8])]
    assert row.split()[-7:-3] == ["5", "1", "6", "1.00"]


def test_ls_as_json(whet: Whet, filled: str) -> None:
    listing = json.loads(whet("store", "stats", "--list", "--store", filled, "--json").out)
    by_id = {entry["workload"]["id"]: entry for entry in listing["workloads"]}
    assert listing["exists"] is True
    assert listing["store"] == str(Path(filled).absolute())
    assert by_id[MATMUL.id]["best"] == {"BM": 64}
    assert by_id[MATMUL.id]["trials"] == 6
    assert by_id[BROKEN.id]["best"] is None


def test_gc_must_be_told_what_may_go(whet: Whet, filled: str) -> None:
    assert "--older-than" in refused(whet("store", "gc", "--store", filled))


@pytest.mark.medium
def test_gc_removes_superseded_trials(whet: Whet, filled: str) -> None:
    dry = whet("store", "gc", "--superseded", "--dry-run", "--store", filled)
    wet = whet("store", "gc", "--superseded", "--store", filled)
    assert dry.out.startswith("would remove 0 workloads, 1 trial, 0 runs")
    assert wet.out.startswith("removed 0 workloads, 1 trial, 0 runs")
    with open_store(filled) as store:
        assert len(store.trials(MATMUL.id, all=True)) == 5


def test_gc_removes_what_is_older_than_an_age(whet: Whet, filled: str) -> None:
    with open_store(filled) as store:
        store.append([a_trial(SOFTMAX, {"BN": 9}, created=time.time())])
    ran = whet("store", "gc", "--older-than", "30d", "--store", filled)
    assert ran.out.startswith("removed 3 workloads")
    with open_store(filled) as store:
        assert [one.workload.kernel for one in store.workloads()] == ["softmax"]


def test_gc_of_one_kernel_leaves_the_others(whet: Whet, filled: str) -> None:
    assert whet("store", "gc", "--kernel", "matmul", "--store", filled).code == 0
    with open_store(filled) as store:
        assert {one.workload.kernel for one in store.workloads()} == {"softmax", "broken"}


def test_gc_removes_a_kernel_that_cannot_be_read(whet: Whet, filled: str) -> None:
    with closing(sqlite3.connect(filled)) as db, db:
        db.execute("UPDATE workloads SET body = '{}' WHERE kernel = 'matmul'")
    assert "gc --kernel NAME" in whet("store", "stats", "--list", "--store", filled).err
    assert whet("store", "gc", "--kernel", "matmul", "--store", filled).code == 0
    with open_store(filled) as store:
        assert {one.workload.kernel for one in store.workloads()} == {"softmax", "broken"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kernel", "matmull"), "did you mean 'matmul'"),
        (("--older-than", "ages"), "'ages' is not valid; use an age, such as 12h, 30d or 8w"),
    ],
)
def test_a_mistake_in_gc_removes_nothing(
    whet: Whet, filled: str, arguments: tuple[str, ...], message: str
) -> None:
    assert message in refused(whet("store", "gc", *arguments, "--store", filled))
    with open_store(filled) as store:
        assert len(store.workloads()) == 4


@pytest.mark.medium
def test_merge_adds_what_is_new(whet: Whet, filled: str) -> None:
    first = whet("store", "merge", filled, "--store", "all.db")
    again = whet("store", "merge", filled, "--store", "all.db")
    assert first.code == 0
    assert "4 workloads, 9 trials, 1 run new" in first.out
    assert "0 workloads, 0 trials, 0 runs new" in again.out


def test_merging_a_store_that_is_not_there_changes_nothing(whet: Whet) -> None:
    ran = whet("store", "merge", "missing.db", "--store", "all.db")
    assert ran.code == 2
    assert "missing.db" in ran.err
    assert list(Path().iterdir()) == []


def test_a_store_is_not_merged_into_itself(whet: Whet, filled: str) -> None:
    assert "into itself" in refused(
        whet("store", "merge", filled, "--store", f"sqlite:///{filled}")
    )


@pytest.mark.parametrize("command", READING)
def test_what_is_not_a_store_is_said_plainly_and_left_alone(
    whet: Whet, command: tuple[str, ...]
) -> None:
    Path("notes.txt").write_text("not a database\n" * 100)
    ran = whet(*command, "--store", "notes.txt")
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert "notes.txt" in ran.err
    assert Path("notes.txt").read_text() == "not a database\n" * 100


@pytest.mark.parametrize("where", ["x.db", "sqlite:///x.db", "~/x.db", "sqlite:///{here}/x.db"])
def test_the_place_that_is_named_is_the_place_that_is_opened(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    where = where.format(here=tmp_path)
    with open_store(where) as store:
        assert store_place(where) == store.location


def test_the_default_place_is_the_one_that_is_opened() -> None:
    with open_store() as store:
        assert store_place(None) == store.location


@pytest.mark.parametrize("where", [":memory:", "sqlite://", "sqlite:///:memory:"])
def test_memory_has_no_place(where: str) -> None:
    assert store_place(where) == ":memory:"
