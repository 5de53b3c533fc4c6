"""Which results one file is made from, and how foreign ones are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from interop_samples import a_key, moe_store, tile, tuned

from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.timing import Summary
from whet.core.workload import Device, Origin, Workload
from whet.interop import Finding, Tried, keep, select
from whet.store import MemoryStore
from whet.testing.samples import a_run, a_trial

A100 = Device("NVIDIA A100", "nvidia", "sm_80")


def test_two_devices_are_refused_until_one_is_named() -> None:
    store = moe_store(8, 16)
    tuned(store, a_key({"M": 8, "E": 8, "N": 14336}, device=A100), [(tile(), 10.0)])
    with pytest.raises(UsageError, match=r"2 devices \(.*A100.*\); choose one with --device"):
        select(store.workloads())
    assert len(select(store.workloads(), devices=["NVIDIA A100"]).picks) == 1
    assert len(select(store.workloads(), devices=["NVIDIA A100", "NVIDIA H200"]).picks) == 3
    with pytest.raises(UsageError, match="no results for device 'H200'"):
        select(store.workloads(), devices=["H200"])


def test_of_two_toolchains_the_newest_counts_and_the_rest_is_told() -> None:
    store = moe_store(8, 16)
    newer = a_key({"M": 8, "E": 8, "N": 14336}, toolchain={"triton": "3.7.0"})
    config = Config(tile(num_warps=8))
    store.save_run(a_run(newer, config, started=1_800_000_000.0))
    store.append([a_trial(newer, config, created=1_800_000_000.0)])
    selection = select(store.workloads())
    assert [workload for workload, _ in selection.picks] == [newer]
    other, older = selection.notes
    assert "1 key (M=16 E=8 N=14336)" in other
    assert "triton 3.6.0, not triton 3.7.0" in other
    assert "1 older result" in older


def made_from(fingerprint: str, key: dict[str, int], origin: Origin) -> Workload:
    return replace(a_key(key), fingerprint=fingerprint, origin=origin)


def notes_of(*workloads: Workload, **options: Any) -> tuple[str, ...]:
    """What is left out where the first of them is the newest."""
    store = MemoryStore()
    for age, workload in enumerate(workloads):
        started = 1_700_000_000.0 - age
        store.save_run(a_run(workload, tile(), started=started))
        store.append([a_trial(workload, tile(), created=started)])
    return select(store.workloads(), **options).notes


def test_captured_values_that_split_a_kernel_are_named_with_the_remedy() -> None:
    sources = [
        made_from(str(m), {"N": 8}, Origin("same", FrozenMap({"M": str(m)}))) for m in (3, 1, 2)
    ]
    [note] = notes_of(*sources)
    assert "2 keys (M=1 N=8; M=2 N=8)" in note
    assert "M=3" in note
    assert "put M in key=" in note


def test_another_file_earlier_code_and_a_source_of_which_nothing_is_known_are_told_apart() -> None:
    here = made_from("1", {"M": 1}, Origin("1", places=("/a/k.py:f",)))
    there = made_from("2", {"M": 2}, Origin("2", places=("/b/k.py:f",)))
    [note] = notes_of(here, there)
    assert "1 key (M=2)" in note
    assert "export /b/k.py:f" in note
    earlier = made_from("2", {"M": 2}, Origin("2", places=("/a/k.py:f",)))
    unknown = made_from("3", {"M": 3}, Origin())
    first, second = notes_of(here, earlier, unknown)
    assert "1 key (M=2), from an earlier" in first
    assert "1 key (M=3)" in second
    assert "(whet 0.1 " in second


def test_a_device_that_was_not_asked_for_is_named() -> None:
    here, there = a_key({"M": 1}), a_key({"M": 2}, device=A100)
    [note] = notes_of(here, there, devices=["NVIDIA H200"])
    assert "1 key (M=2)" in note
    assert "--device 'NVIDIA A100'" in note


def test_a_source_that_is_asked_for_comes_before_a_newer_one() -> None:
    store = MemoryStore()
    for age, fingerprint in enumerate(("new", "old")):
        workload = made_from(fingerprint, {"M": 1}, Origin())
        store.save_run(a_run(workload, tile(), started=1_700_000_000.0 - age))
        store.append([a_trial(workload, tile())])
    [(picked, _)] = select(store.workloads(), source="old").picks
    assert picked.fingerprint == "old"


def test_another_driver_is_the_same_key_again() -> None:
    store = moe_store(8)
    [known] = store.workloads()
    device = replace(known.workload.device, driver="13.0")
    tuned(store, replace(known.workload, device=device), [(tile(), 10.0)])
    assert len(select(store.workloads()).picks) == 1


def test_where_chooses_by_the_key() -> None:
    store = moe_store(8, 16)
    [(workload, _)] = select(store.workloads(), where={"M": 16}).picks
    assert workload.key["M"] == 16
    with pytest.raises(UsageError, match=r"no workload of fused_moe_kernel has M=3; .*E, M, N"):
        select(store.workloads(), where={"M": 3})


def test_a_kernel_of_which_nothing_works_is_refused() -> None:
    store = MemoryStore()
    workload = a_key({"M": 1})
    store.put_workload(workload)
    store.append([a_trial(workload, status=Status.BUILD_ERROR)])
    with pytest.raises(UsageError, match="is known; tune it first"):
        select(store.workloads())


def test_a_foreign_timing_is_kept_as_a_summary_in_a_workload_of_its_own() -> None:
    quick, slow = Config(B=1), Config(B=2)
    finding = Finding(
        kernel="conv",
        device="NVIDIA H200",
        key=FrozenMap({"n": 4}),
        source="t4",
        tried=(
            Tried(slow, timing=Summary(20.0, 19.0, 22.0, "t4")),
            Tried(quick, timing=Summary(10.0, 9.0, 12.0, "t4")),
            Tried(Config(B=3), Status.BUILD_ERROR, error="no such instruction"),
        ),
        best=quick,
    )
    store = MemoryStore()
    assert keep(store, [finding]) == (1, 3)
    assert keep(store, [finding]) == (1, 0)
    [known] = store.workloads()
    assert len(store.runs(known.workload.id)) == 1
    assert (known.ok, known.configs, known.best_config) == (2, 3, quick)
    best = known.best
    assert best is not None
    assert best.timing is not None
    assert (best.timing.samples, best.timing.foreign) == ((), finding.tried[1].timing)
    assert known.workload.toolchain["timer"] == "t4"
