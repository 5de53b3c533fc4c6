"""A narrow table leaves out what is the same in every row, and shows what differs."""

from __future__ import annotations

import pytest

from cli_runs import Whet
from whet.cli.terminal.output import Column, narrowed
from whet.core.status import Status
from whet.store import open_store
from whet.testing.samples import a_trial, a_workload

LAYOUT = [
    Column("median"),
    Column("samples", optional=True),
    Column("status", optional=True),
    Column("config", flexible=True),
]
ROWS = [("1 ms", "7", "ok", "BLOCK_M=64"), ("2 ms", "9", "ok", "BLOCK_M=32")]


def titles(width: int) -> list[str]:
    return [column.title for column in narrowed(LAYOUT, ROWS, width)[0]]


def test_what_fits_is_left_alone() -> None:
    assert titles(80) == ["median", "samples", "status", "config"]
    assert narrowed(LAYOUT, ROWS, 80)[2] == []


def test_a_column_that_is_the_same_in_all_rows_goes_first_and_is_said_once() -> None:
    assert titles(28) == ["median", "samples", "config"]
    assert narrowed(LAYOUT, ROWS, 28)[2] == ["status: ok in all"]


def test_what_may_go_goes_before_anything_is_cut() -> None:
    assert titles(20) == ["median", "config"]


@pytest.fixture
def _tuned() -> None:
    workload = a_workload()
    with open_store("s.db") as store:
        store.put_workload(workload)
        for n in range(4):
            config = {"BLOCK_M": 64, "BLOCK_N": 32 << n, "num_warps": 4, "num_stages": 3 + n}
            store.append([a_trial(workload, config, 1000.0 + n)])
            failed = {**config, "num_warps": 8}
            store.append([a_trial(workload, failed, status=Status.BUILD_ERROR)])


@pytest.mark.usefixtures("_tuned")
def test_trials_tell_configs_apart_at_forty_columns(
    whet: Whet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    ran = whet("show", "trials", "matmul", "--store", "s.db")
    assert ran.widest <= 40
    for n in range(4):
        assert ran.out.count(f"{32 << n} {3 + n}") == 2
    assert "by BLOCK_N, num_stages; all with BLOCK_M=64" in " ".join(ran.out.split())
