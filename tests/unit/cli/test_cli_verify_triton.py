"""`whet verify` of Triton kernels, on a driver without a device and with times that are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet
from whet.cli.arguments.locate import locate
from whet.store import open_store
from whet.testing.fake_triton import fake_driver

pytest.importorskip("triton")

# 32 is the fastest; 16, the author's first, is slow.
KERNEL = """
import triton
import triton.language as tl
import whet
from whet.testing.fake_triton import FakeTensor, told

def inputs(n, dtype="float32"):
    return (1,), (FakeTensor([0.0], dtype), FakeTensor([0.0], dtype)), {"n": n}

TIMES = {16: 4000.0, 32: 1000.0, 64: 2000.0}

@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

configs = [triton.Config({"BLOCK": size}) for size in TIMES]
tuned = whet.autotune(configs, key=["n"], inputs=inputs)(copy)
tuned.whet_timer = told(lambda config: TIMES[config.kwargs["BLOCK"]])
chosen = triton.heuristics({})(tuned)
"""


@pytest.fixture(autouse=True)
def _gpu(binaries: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(binaries))
    Path("kernel.py").write_text(KERNEL)
    with fake_driver():
        yield


def tune(whet: Whet, *keys: str) -> None:
    typed = [part for key in keys for part in ("--key", key)]
    ran = whet("tune", "kernel.py:tuned", *typed, "--store", "s.db", "-q")
    assert ran.code == 0, ran.err


def verify(whet: Whet, *arguments: str, name: str = "tuned") -> Any:
    return whet("verify", f"kernel.py:{name}", *arguments, "--store", "s.db", "-q")


def slow_down(block: int, ns: float) -> None:
    Path("kernel.py").write_text(KERNEL + f"\nTIMES[{block}] = {ns}\n")


def trials() -> int:
    with open_store("s.db", read_only=True) as store:
        return sum(one.trials for one in store.workloads())


@pytest.mark.medium
def test_a_key_is_verified_as_it_was_tuned(whet: Whet) -> None:
    tune(whet, "n=64")
    before = trials()
    ran = verify(whet, "--key", "n=64", "--json")

    assert ran.code == 0, ran.err
    (pick,) = json.loads(ran.out)["picks"]
    assert pick["verdict"] == "ok"
    assert pick["differs"] == []
    assert pick["config"]["BLOCK"] == 32
    assert (pick["now_ns"], pick["first_ns"]) == (1000.0, 4000.0)
    assert pick["beats_first"] is True
    assert trials() == before


@pytest.mark.medium
def test_a_slower_pick_is_exit_code_1(whet: Whet) -> None:
    tune(whet, "n=64")
    slow_down(32, 1100.0)
    ran = verify(whet, "--key", "n=64")
    assert ran.code == 1
    assert "1 slower" in ran.out
    assert "1.10×" in ran.out


@pytest.mark.medium
def test_without_keys_every_stored_one_is_verified(whet: Whet) -> None:
    tune(whet, "n=64", "n=65")
    ran = verify(whet)
    assert ran.code == 0, ran.err
    assert "2 picks: 2 ok" in ran.out
    assert ran.widest <= 80


@pytest.mark.medium
def test_a_stored_key_that_inputs_calls_otherwise_is_named(whet: Whet) -> None:
    tune(whet, "n=64", "n=64,dtype=float16")
    ran = verify(whet)
    assert ran.code == 0, ran.err
    assert "1 pick: 1 ok" in ran.out
    assert "x_ptr.dtype=torch.float16" in ran.out
    assert "not verified" in ran.out


@pytest.mark.medium
def test_a_kernel_below_heuristics_is_verified(whet: Whet) -> None:
    tune(whet, "n=64")
    assert "1 pick: 1 ok" in verify(whet, "--key", "n=64", name="chosen").out


@pytest.mark.medium
def test_what_is_recorded_is_kept(whet: Whet) -> None:
    tune(whet, "n=64")
    before = trials()
    slow_down(32, 1100.0)
    assert verify(whet, "--key", "n=64", "--record").code == 1
    assert trials() == before + 2
    assert "1 pick: 1 ok" in verify(whet, "--key", "n=64").out


@pytest.mark.medium
def test_a_key_that_was_never_tuned_is_said_with_the_remedy(whet: Whet) -> None:
    tune(whet, "n=64")
    ran = verify(whet, "--key", "n=7")
    assert ran.code == 1
    assert "whet tune kernel.py:tuned --key n=7" in ran.err


@pytest.mark.medium
def test_a_kernel_that_was_borrowed_can_be_called_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from whet.targets.triton.offline.kernel import Kernel, make_inputs
    from whet.targets.triton.offline.tuning import with_target

    monkeypatch.setenv("WHET_STORE", ":memory:")
    kernel = locate("kernel.py:tuned")
    assert isinstance(kernel, Kernel)
    grid, args, keywords = make_inputs(kernel, {"n": 64})

    said = with_target(kernel, grid, args, keywords, lambda target: target.workload().key["n"])
    assert said == 64
    assert kernel.tuner.whet_result is None
    kernel.launcher[grid](*args, **keywords)
    assert kernel.tuner.best_config.kwargs == {"BLOCK": 32}
