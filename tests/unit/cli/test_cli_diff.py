"""`whet diff` of two stores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, refused
from whet.core.workload import Workload
from whet.store import open_store
from whet.testing.samples import a_trial, a_workload

MATMUL = a_workload()
SOFTMAX = a_workload(kernel="softmax", key={"N": 512})


def fill(path: str, *picks: tuple[Workload, dict[str, Any], float]) -> None:
    with open_store(path) as store:
        for workload, config, median_ns in picks:
            store.put_workload(workload)
            store.append([a_trial(workload, config, median_ns)])


@pytest.fixture(autouse=True)
def _two_stores() -> None:
    """One pick is another one, one the same, and one workload each the other store lacks."""
    first, last = a_workload(key={"M": 1}), a_workload(key={"M": 9})
    fill(
        "a.db",
        (MATMUL, {"BM": 64, "BN": 32}, 1000.0),
        (SOFTMAX, {"BN": 8}, 300.0),
        (first, {"BM": 1}, 10.0),
    )
    fill(
        "b.db",
        (MATMUL, {"BM": 16, "BN": 32}, 2000.0),
        (SOFTMAX, {"BN": 8}, 301.0),
        (last, {"BM": 1}, 10.0),
    )


def test_every_workload_is_told_once_and_then_counted(whet: Whet) -> None:
    ran = whet("store", "diff", "a.db", "b.db")
    assert ran.code == 0
    rows = [line for line in ran.out.splitlines() if "matmul(" in line or "softmax(" in line]
    assert [row.split("  ")[0] for row in rows] == [
        "changed",
        "only in A",
        "only in B",
        "same",
    ]
    assert "1.00 µs  2.00 µs  2.00×  A" in rows[0]
    assert rows[3].endswith("unclear")
    assert ran.out.splitlines()[-1] == (
        "4 workloads: 1 same, 1 changed (1 significant), 1 only in A, 1 only in B"
    )


def test_other_picks_are_shown_beneath_their_workload(whet: Whet) -> None:
    lines = whet("store", "diff", "a.db", "b.db").out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("changed"))
    assert [line.strip() for line in lines[at + 1 : at + 3]] == ["A  BM=64 BN=32", "B  BM=16 BN=32"]


@pytest.mark.medium
def test_only_an_exit_code_that_is_asked_for_tells(whet: Whet) -> None:
    assert whet("store", "diff", "a.db", "b.db", "--exit-code").code == 1
    assert whet("store", "diff", "a.db", "b.db", "softmax", "--exit-code").code == 0
    assert whet("store", "diff", "a.db", "a.db", "--exit-code").code == 0


def test_json_has_both_medians_the_ratio_and_the_verdict(whet: Whet) -> None:
    found = json.loads(whet("store", "diff", "a.db", "b.db", "--json").out)
    assert found["summary"] == {
        "other": 1,
        "same": 1,
        "only_a": 1,
        "only_b": 1,
        "told_apart": 1,
    }
    other = found["workloads"][0]
    assert other["pick"] == "other"
    assert (other["a"]["median_ns"], other["b"]["median_ns"]) == (1000.0, 2000.0)
    assert other["b"]["config"] == {"BM": 16, "BN": 32}
    assert other["ratio"]["low"] < other["ratio"]["mid"] == pytest.approx(2.0)
    assert other["faster"] == "a"
    assert found["workloads"][1]["b"] is None


def test_another_device_and_toolchain_are_named(whet: Whet) -> None:
    device = replace(MATMUL.device, driver="7.0")
    fill("c.db", (a_workload(device=device, toolchain={"cc": "clang 14"}), {"BM": 64}, 1000.0))
    ran = whet("store", "diff", "a.db", "c.db", "matmul")
    text = " ".join(ran.out.split())
    assert "device: Test CPU (x86_64, driver 6.1) in A, Test CPU (x86_64, driver 7.0) in B" in text
    assert "toolchain: gcc 12.2.0 in A, clang 14 in B" in text
    assert ran.widest <= 80


def test_a_misspelt_kernel_gets_a_suggestion(whet: Whet) -> None:
    assert "mean 'softmax'?" in refused(whet("store", "diff", "a.db", "b.db", "softmx"))


def test_a_store_that_is_not_there_is_said_and_not_made(whet: Whet) -> None:
    ran = whet("store", "diff", "a.db", "none.db", "--exit-code")
    assert ran.code == 2
    assert "none.db" in ran.err
    assert not Path("none.db").exists()


def test_two_stores_that_know_nothing_have_no_differences(whet: Whet) -> None:
    open_store("empty.db").close()
    assert (
        whet("store", "diff", "empty.db", "empty.db")
        .out.splitlines()[-1]
        .startswith("0 workloads:")
    )


def test_what_became_slower_comes_first_and_fails_a_build(whet: Whet) -> None:
    quick, slow = a_workload(key={"M": 3}), a_workload(key={"M": 5})
    fill("old.db", (quick, {"BM": 1}, 900.0), (slow, {"BM": 1}, 100.0))
    fill("new.db", (quick, {"BM": 2}, 300.0), (slow, {"BM": 1}, 150.0))
    ran = whet("store", "diff", "old.db", "new.db", "--slower")
    assert ran.code == 1
    assert ran.out.splitlines()[4].startswith("same     matmul(M=5)")
    assert whet("store", "diff", "new.db", "new.db", "--slower").code == 0


def test_configs_that_both_measured_are_compared_too(whet: Whet) -> None:
    for path, times in (("old.db", (100.0, 200.0, 400.0)), ("new.db", (110.0, 220.0, 300.0))):
        fill(path, *((MATMUL, {"BM": bm}, ns) for bm, ns in zip((1, 2, 4), times, strict=True)))
    text = " ".join(whet("store", "diff", "old.db", "new.db").out.split())
    assert "3 configs measured in both: B/A 1.10× (0.75 to 1.10), 2 slower, 1 faster" in text
    (found,) = json.loads(whet("store", "diff", "old.db", "new.db", "--json").out)["workloads"]
    assert found["matched"]["configs"] == 3
    assert found["matched"]["ratio"]["mid"] == pytest.approx(1.1)


def test_two_devices_of_one_store_are_compared(whet: Whet) -> None:
    other = replace(MATMUL.device, name="Other CPU")
    fill("c.db", (MATMUL, {"BM": 1}, 100.0), (a_workload(device=other), {"BM": 1}, 300.0))
    ran = whet("store", "diff", "c.db", "c.db", "--a", "test", "--b", "other", "--slower")
    assert ran.code == 1
    assert "1 workload: 1 same" in ran.out
    assert "device: Test CPU" in ran.out
