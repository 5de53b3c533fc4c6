"""What is printed when a tuning is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from whet.cli.terminal.summary import summary
from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Result, Stop
from whet.core.status import Status
from whet.core.trial import Cost
from whet.core.workload import Device
from whet.testing.samples import a_run, a_trial, a_workload

WORKLOAD = a_workload(
    key={f"argument_{i}": "float32[4096x4096]" for i in range(4)},
    device=Device("A Processor With Quite A Long Name @ 2.20 GHz", "cpu", "x86_64"),
)
WALL = {"measure": 6.0, "load": 0.5, "check": 0.5, "search": 0.0, "waiting": 2.5, "idle": 0.5}


def a_result(**changes: Any) -> Result:
    best = a_trial(WORKLOAD, {"BM": 64, "BN": 32}, 1000.0)
    first = a_trial(WORKLOAD, {"BM": 8, "BN": 8}, 4000.0, status=Status.OUTRACED)
    failed = [
        a_trial(
            WORKLOAD, {"BM": i, "BN": 0}, status=Status.BUILD_ERROR, error=f"error: {i // 9}\nx"
        )
        for i in range(10)
    ]
    run = replace(
        a_run(WORKLOAD, dict(best.config)), cost=Cost(FrozenMap(), FrozenMap(WALL)), wall_s=10.0
    )
    result = Result(run, best, first, (best, first, *failed))
    return replace(result, **changes)


def lines(result: Result, store: str | None = None) -> list[str]:
    return summary(result, "/data/store.db", store)


def text(result: Result, store: str | None = None) -> str:
    return "\n".join(lines(result, store))


def test_it_fits_a_page() -> None:
    long = {f"PARAMETER_{i}": i for i in range(20)}
    result = a_result(
        best=a_trial(WORKLOAD, long),
        equals=(Config({**long, "PARAMETER_3": 99}),),
        notes=("word " * 60,),
    )
    assert max(map(len, lines(result))) <= 80
    assert max(map(len, lines(a_result()))) <= 80


def test_best_is_set_against_first_with_its_interval() -> None:
    result = a_result()
    said = text(result)
    assert "best     BM=64 BN=32\n         1.00 µs (970 ns to 1.05 µs at 95 %, 7 samples)" in said
    assert "first    BM=8 BN=8\n         4.00 µs" in said
    assert "4.00× as fast" in said
    paired = text(replace(result, run=replace(result.run, paired_speedup=3.5)))
    assert "side by side" in paired
    assert "3.50× as fast" in paired
    assert "is faster" in text(replace(result, first=result.best))
    assert "first" not in text(a_result(first=None))


def test_equals_are_named_by_what_differs() -> None:
    said = text(a_result(equals=(Config(BM=64, BN=16), Config(BM=32, BN=32))))
    assert "from 2 configs" in said
    assert "BN=16\n" in said
    assert "BM=64 BN=16" not in said


def test_many_equals_are_counted() -> None:
    said = text(a_result(equals=tuple(Config(BM=64, BN=n) for n in range(100, 110))))
    assert "BN=102" in said
    assert "BN=103" not in said
    assert "and 7 more" in said


def test_trials_are_counted_by_status() -> None:
    assert "trials   12 (10 build_error, 1 ok, 1 outraced)" in text(a_result())


def test_failures_are_summed_up_by_their_first_line() -> None:
    said = lines(a_result())
    assert "     9× build_error   error: 0" in said
    assert "     1× build_error   error: 1" in said


def test_where_the_time_went_is_shown_with_percent_and_bars() -> None:
    said = lines(a_result())
    row = next(line for line in said if line.strip().startswith("measuring"))
    assert "time     10.0 s in all" in said
    assert row.split()[1:4] == ["6.00", "s", "60.0%"]
    assert "█" in row
    assert not any(line.strip().startswith("search") for line in said)


def test_it_ends_with_where_it_is_kept_and_what_to_type_next() -> None:
    assert lines(a_result(), store="my store.db")[-4:] == [
        "saved in /data/store.db",
        f"         as workload {WORKLOAD.id}",
        "next     whet best matmul --store 'my store.db'",
        "         whet show trials matmul --store 'my store.db'",
    ]


def test_what_to_type_next_is_what_a_shell_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.argv", [".venv/bin/whet", "demo"])
    assert "next     .venv/bin/whet best matmul" in lines(a_result())


def test_what_is_not_kept_is_said_not_to_be() -> None:
    assert summary(a_result(), ":memory:", ":memory:")[-1].startswith("not saved")


def test_an_answer_from_the_store_cost_no_trials() -> None:
    said = text(a_result(source="stored", trials=(), known=12))
    assert "store (12 trials)" in said
    assert "█" not in said


def test_an_interrupted_run_says_that_it_is_not_the_end() -> None:
    result = a_result()
    stopped = replace(result, run=replace(result.run, outcome=Outcome.INTERRUPTED))
    assert "interrupted:" in text(stopped)


def test_a_printed_result_is_a_few_lines_that_say_what_a_program_can_do_next() -> None:
    run = replace(
        a_result().run, tried=5, stopped=Stop.TRIALS, space_size=132, budget=Budget(trials=5)
    )
    said = str(a_result(run=run, notes=("a \x1b[31mnote",))).splitlines()
    assert len(said) <= 20
    assert max(map(len, said)) <= 80
    told = " ".join(" ".join(said[said.index("") + 1 :]).split())
    parts = (
        "best BM=64 BN=32 1.00 µs (970 ns to 1.05 µs at 95 %, 7 samples)",
        "first BM=8 BN=8 4.00 µs",
        "4.00× as fast",
        "trials 12 (10 build_error, 1 ok, 1 outraced)",
        "space 5 of 132 configs",
        'budget="10trials"',
        "notes a \N{REPLACEMENT CHARACTER}[31mnote",
        "time 10.0 s: measuring 6.00 s",
        "more .trials",
        ".to_json()",
    )
    assert [part for part in parts if part not in told] == []
    assert sorted(parts, key=told.index) == list(parts)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source": "stored", "trials": ()}, "none needed: answered from the store"),
        ({"source": "waited", "trials": ()}, "not finished: this is the best known so far"),
        ({"first": None}, "BM=64 BN=32"),
    ],
)
def test_every_result_can_be_printed(changes: dict[str, Any], words: str) -> None:
    assert words in str(a_result(**changes))
