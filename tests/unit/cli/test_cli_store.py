"""`whet store gc` by size and toolchain, `whet store merge` of several machines, and `whet best`
where one kernel was tuned on several devices."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import replace

import pytest

from cli_runs import Whet
from whet.core.workload import Device, Workload
from whet.store import open_store
from whet.testing.samples import a_run, a_trial, a_workload

DEVICE = a_workload().device
HERE = platform.python_version()


def fill(path: str, *workloads: Workload, trials: int = 1, said: str = "") -> None:
    """Each workload is a second younger than the one before."""
    with open_store(path) as store:
        for age, workload in enumerate(workloads):
            created = time.time() - 1000 + age
            store.put_workload(workload)
            store.append(
                a_trial(workload, {"BM": n}, 1000.0 + n, created=created, error=said)
                for n in range(trials)
            )


def built_with(**tools: str) -> Workload:
    return a_workload(kernel="_".join(tools.values()), toolchain=tools)


def kernels(path: str) -> set[str]:
    with open_store(path) as store:
        return {one.workload.kernel for one in store.workloads()}


@pytest.fixture
def large() -> str:
    """Some 400 kB in each of five workloads."""
    workloads = [a_workload(kernel=f"k{age}") for age in range(5)]
    fill("large.db", *workloads, trials=20, said="x" * 20_000)
    return "large.db"


@pytest.mark.medium
def test_gc_shrinks_a_store_to_a_size(whet: Whet, large: str) -> None:
    before = os.path.getsize(large)
    dry = whet("store", "gc", "--max-size", "1M", "--dry-run", "--store", large)
    assert os.path.getsize(large) == before
    wet = whet("store", "gc", "--max-size", "1M", "--store", large)
    assert dry.out.startswith("would remove 3 workloads, 60 trials, 0 runs")
    assert wet.out.startswith("removed 3 workloads, 60 trials, 0 runs")
    assert "1 of k0, 1 of k1, 1 of k2" in wet.out
    assert kernels(large) == {"k3", "k4"}
    assert os.path.getsize(large) <= 2**20


@pytest.mark.medium
def test_gc_of_a_store_that_fits_removes_nothing(whet: Whet, large: str) -> None:
    ran = whet("store", "gc", "--max-size", "10M", "--store", large)
    assert ran.out.startswith("removed 0 workloads, 0 trials, 0 runs")
    assert len(kernels(large)) == 5


@pytest.mark.medium
def test_gc_says_where_what_may_go_was_not_enough(whet: Whet, large: str) -> None:
    ran = whet("store", "gc", "--max-size", "1K", "--kernel", "k4", "--store", large)
    assert "larger than 1K" in ran.out
    assert kernels(large) == {"k0", "k1", "k2", "k3"}


def test_gc_removes_what_one_version_built(whet: Whet) -> None:
    fill("s.db", built_with(triton="3.5.1"), built_with(triton="3.5"), built_with(triton="3.50"))
    ran = whet("store", "gc", "--toolchain", "triton=3.5", "--store", "s.db")
    assert ran.out.startswith("removed 2 workloads")
    assert "built with triton 3.5, 3.5.1" in ran.out
    assert kernels("s.db") == {"3.50"}


@pytest.mark.medium
def test_gc_keeps_what_this_machine_has_and_the_newest(whet: Whet) -> None:
    versions = ("2.7.18", HERE, "99.0.1", "99.1.0")
    fill("s.db", *(built_with(python=version) for version in versions), built_with(tool="1.0"))
    dry = whet("store", "gc", "--other-toolchains", "--dry-run", "--store", "s.db")
    assert len(kernels("s.db")) == 5
    wet = whet("store", "gc", "--other-toolchains", "--store", "s.db")
    assert dry.out.startswith("would remove 2 workloads")
    assert wet.out.startswith("removed 2 workloads")
    assert "built with python 2.7.18, 99.0.1" in wet.out
    assert kernels("s.db") == {HERE, "99.1.0", "1.0"}


def test_a_toolchain_confines_what_else_may_go(whet: Whet) -> None:
    old, new = built_with(triton="3.5"), built_with(triton="3.6")
    fill("s.db", old, new)
    with open_store("s.db") as store:
        store.append([a_trial(old, {"BM": 0}), a_trial(new, {"BM": 0})])
    ran = whet("store", "gc", "--superseded", "--toolchain", "triton=3.5", "--store", "s.db")
    assert ran.out.startswith("removed 0 workloads, 1 trial,")
    with open_store("s.db") as store:
        assert len(store.trials(new.id, all=True)) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max-size", "plenty"), "'plenty' is not valid; use a size, such as 500M or 2G"),
        (("--toolchain", "triton"), "such as triton=3.5"),
        (("--toolchain", "tritn=3.5"), "did you mean 'triton'?"),
    ],
)
def test_a_size_or_toolchain_that_cannot_be_read_removes_nothing(
    whet: Whet, arguments: tuple[str, ...], message: str
) -> None:
    fill("s.db", built_with(triton="3.5"))
    ran = whet("store", "gc", *arguments, "--store", "s.db")
    assert ran.code == 2
    assert message in ran.err
    assert len(kernels("s.db")) == 1


def test_merge_says_whose_results_came(whet: Whet) -> None:
    other = replace(DEVICE, name="Other CPU", architecture="aarch64", driver="")
    fill("a.db", a_workload(), a_workload(kernel="softmax"), a_workload(device=other))
    fill("all.db", a_workload())
    ran = whet("store", "merge", "a.db", "--store", "all.db")
    assert "2 workloads, 3 trials, 0 runs new" in ran.out
    assert "  1 workload of Test CPU (x86_64, driver 6.1)\n" in ran.out
    assert "  1 workload of Other CPU (aarch64)\n" in ran.out
    assert "note:" not in ran.out


@pytest.mark.medium
def test_merge_names_devices_that_only_look_alike(whet: Whet) -> None:
    fill("a.db", a_workload())
    fill("b.db", a_workload(device=replace(DEVICE, driver="7.0")))
    ran = whet("store", "merge", "a.db", "b.db", "--store", "all.db")
    assert "note: 'Test CPU' stands for 2" in ran.out
    assert "driver 6.1" in ran.out.partition("note:")[2]
    assert "driver 7.0" in ran.out.partition("note:")[2]
    with open_store("all.db") as store:
        assert len(store.workloads()) == 2


def test_best_tells_devices_of_one_name_apart(whet: Whet) -> None:
    fill("s.db", a_workload(), a_workload(device=replace(DEVICE, driver="7.0")))
    ran = whet("best", "--store", "s.db")
    assert "driver 6.1" in ran.out
    assert "driver 7.0" in ran.out
    assert ran.widest <= 80


def test_best_says_what_a_pick_was_built_with_where_there_are_several_versions(whet: Whet) -> None:
    fill("s.db", a_workload(), a_workload(toolchain={"triton": "3.5"}))
    ran = whet("best", "--store", "s.db")
    assert "built with" in ran.out.splitlines()[0]
    assert "triton 3.5" in ran.out
    assert "gcc 12.2.0" in ran.out
    assert ran.widest <= 80


def test_best_leaves_out_what_all_picks_share(whet: Whet) -> None:
    fill("s.db", a_workload(), a_workload(kernel="softmax", toolchain={"triton": "3.5"}))
    head = whet("best", "--store", "s.db").out.splitlines()[0]
    assert head.split() == ["id", "workload", "best", "tried", "config"]


def test_best_of_one_says_for_what_it_holds_and_who_chose_it(whet: Whet) -> None:
    fill("s.db", a_workload(), trials=2)
    unfinished = whet("best", "matmul", "--store", "s.db")
    with open_store("s.db") as store:
        run = a_run(a_workload(), {"BM": 1}, search="gp")
        store.save_run(run)
    finished = whet("best", "matmul", "--store", "s.db")
    found = json.loads(whet("best", "matmul", "--store", "s.db", "--json").out)

    assert "no tuning" in unfinished.out
    assert "(gp, 6 configs tried)" in finished.out
    assert "Test CPU (x86_64, driver 6.1)" in finished.out
    assert "gcc 12.2.0" in finished.out
    assert finished.widest <= 80
    assert found["best"][0]["run"] == run.id


def test_a_device_without_a_driver_is_named_without_one(whet: Whet) -> None:
    fill("s.db", a_workload(device=Device("Plain CPU", "cpu", "riscv")))
    assert "device   Plain CPU (riscv)\n" in whet("best", "--store", "s.db").out
