"""`whet lab`, as one types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli_runs import Whet, one_line, refused
from whet.cli.commands.lab import pareto, replay, searches
from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.workload import Device
from whet.replay import Build, Table, TableOutcome, TableWorkload, read_table, write_table
from whet.replay.files import shipped
from whet.store import open_store
from whet.testing.samples import a_trial, a_workload


def a_table(workloads: int = 1, device: str = "GPU A") -> Table:
    """Twelve configs, of which one fails."""
    configs = tuple(Config(BM=16 * at, W=warps) for at in range(1, 5) for warps in (2, 4, 8))
    rows = []
    for number in range(1, workloads + 1):
        outcomes = [
            TableOutcome(Status.OK, ((1000 * number + 100 * at, 1010 * number + 100 * at),))
            for at in range(len(configs) - 1)
        ]
        rows.append(TableWorkload.of({"M": number}, [*outcomes, TableOutcome(Status.RUN_ERROR)]))
    return Table(
        kernel="k",
        fingerprint="",
        device=Device(device, "", ""),
        configs=configs,
        builds=tuple(Build(Status.OK, 0.5) for _ in configs),
        workloads=tuple(rows),
    )


@pytest.fixture
def one(tmp_path: Path) -> str:
    write_table(a_table(), tmp_path / "one.whet.json.gz")
    return "one.whet.json.gz"


@pytest.fixture
def many(tmp_path: Path) -> str:
    write_table(a_table(5, "GPU B"), tmp_path / "many.whet.json.gz")
    return "many.whet.json.gz"


@pytest.mark.parametrize("command", [replay, searches, pareto])
def test_examples_name_tables_that_ship_or_are_the_users_own(command: Callable[..., Any]) -> None:
    tables = [line.split()[3] for line in str(command.__doc__).splitlines() if "  whet lab" in line]
    assert [name for name in tables if not name.startswith("mine/")]
    assert {name for name in tables if not name.startswith("mine/")} <= set(shipped())


@pytest.mark.medium
def test_json_has_what_was_found_by_evaluations(whet: Whet, one: str) -> None:
    ran = whet(
        "lab",
        "replay",
        one,
        "--search",
        "grid,random",
        "--evals",
        "1,12",
        "--repeats",
        "3",
        "--json",
    )
    assert ran.code == 0
    rows = json.loads(ran.out)["tables"]
    assert [row["search"] for row in rows] == ["grid", "random"]
    grid = rows[0]
    assert grid["table"] == one
    assert grid["optimum"] == 1005.0
    assert grid["found"] == {"1": 1.0, "12": 1.0}
    assert set(grid["worst"]) == {"1", "12"}
    assert grid["search_ms_per_eval"] >= 0


@pytest.mark.medium
def test_the_readable_table_fits_a_page_and_ends_with_means(
    whet: Whet, one: str, many: str
) -> None:
    ran = whet("lab", "replay", one, many, "--search", "random", "--repeats", "2", "--evals", "3,5")
    assert ran.code == 0
    assert ran.widest <= 80
    assert "many M=5" in ran.out
    assert ran.out.splitlines()[-1].startswith("mean of 6")


@pytest.fixture
def alike(tmp_path: Path) -> str:
    """Keys that differ at their ends only, and a table whose name is long."""
    table = a_table(3)
    named = [
        replace(one, key=FrozenMap({"batch": 1024, "hidden": 4096, "sequence": 8192 + at}))
        for at, one in enumerate(table.workloads)
    ]
    name = "a-table-of-a-rather-long-name.whet.json.gz"
    write_table(replace(table, workloads=tuple(named)), tmp_path / name)
    return name


@pytest.mark.medium
@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize("search", ["grid", "grid,random"])
def test_no_width_hides_which_workload_a_row_is_about(
    whet: Whet, alike: str, monkeypatch: pytest.MonkeyPatch, columns: int, search: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    ran = whet("lab", "replay", alike, "--search", search, "--repeats", "2")
    assert ran.widest <= columns
    for at in range(3):
        assert f"sequence={8192 + at}" in ran.out
    for title in ("at 10", "at 25", "at 50", "at 100", "worst", "ms/eval"):
        assert title in ran.out


@pytest.mark.medium
@pytest.mark.parametrize("columns", [60, 80])
def test_no_width_cuts_a_comparison(
    whet: Whet, alike: str, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    ran = whet("lab", "searches", alike, "--search", "grid,random", "--repeats", "2")
    assert max(map(len, ran.out.splitlines())) <= columns
    assert "…" not in ran.out


@pytest.mark.medium
def test_what_is_the_same_in_every_row_is_said_once(whet: Whet, many: str) -> None:
    ran = whet("lab", "replay", many, "--search", "grid", "--repeats", "1")
    assert ran.out.count("grid") == 1
    assert ran.out.count("many") == 1


@pytest.mark.medium
def test_a_sample_of_workloads_can_be_asked_for(whet: Whet, many: str) -> None:
    ran = whet(
        "lab", "replay", many, "--search", "grid", "--workloads", "2", "--repeats", "1", "--json"
    )
    assert [row["workload"]["M"] for row in json.loads(ran.out)["tables"]] == [1, 5]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--search", "gridd"), "unknown search 'gridd'; did you mean 'grid'? valid: auto"),
        (("--evals", "10,x"), "--evals '10,x' is not valid"),
        (("--evals", "0"), "--evals '0' is not valid"),
        (("--top", "much"), "--top 'much' is not valid; use a percentage, such as 5%"),
        (("--top", "100%"), "--top '100%' is not valid"),
        (("--serch", "grid"), "no such option --serch"),
    ],
)
def test_a_wrong_option_is_one_clear_line(
    whet: Whet, one: str, arguments: tuple[str, ...], said: str
) -> None:
    assert said in one_line(whet("lab", "replay", one, *arguments))


def test_an_unknown_format_is_one_clear_line(whet: Whet, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"hello": 1}')
    assert "(whet, Kernel Tuner or T4)" in refused(whet("lab", "replay", "x.json"))


@pytest.mark.medium
def test_a_table_that_is_cut_off_is_replayed_as_far_as_it_goes(whet: Whet, tmp_path: Path) -> None:
    entries = ", ".join(f'"{b}": {{"b": {b}, "time": {b}.5, "times": [{b}.5]}}' for b in (1, 2))
    text = f'{{"kernel_name": "k", "tune_params_keys": ["b"], "cache": {{{entries}, "3": {{"b'
    (tmp_path / "cut.json").write_text(text)
    ran = whet("lab", "replay", "cut.json", "--search", "grid", "--evals", "2", "--json")
    assert ran.code == 0
    assert "first 2 configs" in ran.err
    assert json.loads(ran.out)["tables"][0]["found"] == {"2": 1.0}


def test_transfer_takes_all_names_up_to_the_next_option(
    whet: Whet, one: str, many: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whet.cli.commands import lab_replay

    seen: list[Any] = []

    def spy(names: list[str], transfer: list[str], workloads: int | None) -> list[Any]:
        seen.append((list(names), list(transfer)))
        raise UsageError("enough")

    monkeypatch.setattr(lab_replay, "make_cases", spy)
    whet("lab", "replay", one, "--transfer", many, one, "--repeats", "1")
    whet("lab", "replay", one, "--transfer", many, "--transfer", one)
    assert seen == [([one], [many, one])] * 2


def test_transfer_from_nothing_that_fits_says_so(whet: Whet, one: str) -> None:
    ran = whet("lab", "replay", one, "--search", "grid", "--repeats", "1", "--transfer", one)
    assert ran.code == 0
    assert "learn from" in ran.err


@pytest.mark.slow
def test_strategies_are_compared_by_score_and_drawn(
    whet: Whet, one: str, many: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The time that asking takes on this machine would have a say in what is recommended.
    stopped = SimpleNamespace(perf_counter=lambda: 0.0)
    monkeypatch.setattr("whet.replay.simulation.time", stopped)
    monkeypatch.setattr("whet.replay.lab.time", stopped)
    words = ("lab", "searches", one, many, "--search", "grid,random", "--repeats", "3")
    ran = whet(*words, "--out", "searches")
    assert ran.code == 0
    assert ran.widest <= 80
    assert "0 is random" in " ".join(ran.out.split())
    assert "Use grid:" in " ".join(ran.out.split())
    data = json.loads((tmp_path / "searches.json").read_text())
    assert {(row["search"], row["over"]) for row in data["scores"]} == {
        ("grid", "evaluations"),
        ("grid", "time"),
        ("random", "evaluations"),
        ("random", "time"),
    }
    assert len(data["scores"][0]["by_table"]) == len(data["tables"]) == 6
    assert (tmp_path / "searches-time.svg").read_text().startswith("<svg")


@pytest.mark.medium
@pytest.mark.parametrize("json_too", [True, False])
def test_the_comparison_writes_no_files_unasked(
    whet: Whet, one: str, tmp_path: Path, json_too: bool
) -> None:
    words = ("lab", "searches", one, "--search", "grid", "--repeats", "2")
    ran = whet(*words, *["--json"] * json_too)
    assert not json_too or json.loads(ran.out)["scores"][0]["score"] == 1.0
    assert sorted(path.name for path in tmp_path.iterdir()) == [one]


@pytest.mark.slow
def test_the_chance_of_random_search_is_shown_beside_the_formula(whet: Whet, many: str) -> None:
    arguments = ("lab", "replay", many, "--search", "random", "--top", "5%", "--repeats", "40")
    ran = whet(*arguments)
    said = " ".join(ran.out.split())
    assert ran.widest <= 80
    assert "78.5 % at 30" in said
    assert "A 95 % chance takes 59." in said
    tried = json.loads(whet(*arguments, "--json").out)["tables"][0]["tried_top"]
    assert set(tried) == {"10", "30", "59"}
    assert tried["59"] == 1.0  # of twelve configs all


def test_a_store_is_recorded_as_a_table(whet: Whet, tmp_path: Path) -> None:
    workload = a_workload()
    with open_store(str(tmp_path / "s.db")) as store:
        store.put_workload(workload)
        store.append([a_trial(workload, {"BM": bm}, 1000.0 * bm) for bm in (1, 2)])
    ran = whet("lab", "record", workload.kernel, "--store", "s.db", "--out", "t.whet.json.gz")
    assert ran.code == 0
    assert "2 configs × 1 workload" in ran.out
    table = read_table(tmp_path / "t.whet.json.gz")
    assert table.kernel == workload.kernel
    assert table.workloads[0].key == FrozenMap(workload.key)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nothing", "--out", "t.whet.json.gz"), 2, "no results for kernel or workload 'nothing'"),
        (("x", "--out", "t.json"), 2, "must end in .whet.json.gz"),
    ],
)
def test_what_cannot_be_recorded_is_said(
    whet: Whet, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    with open_store(str(tmp_path / "s.db")) as store:
        store.put_workload(a_workload())
        store.append([a_trial(a_workload(), {"BM": 1}, 1000.0)])
    ran = whet("lab", "record", *arguments, "--store", "s.db")
    assert ran.code == code
    assert said in ran.err
