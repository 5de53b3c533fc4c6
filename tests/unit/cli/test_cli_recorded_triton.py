"""Calls that were recorded are made again without `inputs=` and without the program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, own_modules

pytest.importorskip("triton")
pytest.importorskip("torch")

import torch

import whet as package
from whet.core.miss import LaunchGrid, Miss, Placement
from whet.targets.files import load_module
from whet.targets.triton.recorded import recorded_inputs
from whet.testing.fake_triton import fake_driver, told

PROGRAM = """
import triton
import triton.language as tl
import whet
from whet.testing.fake_triton import told

seen = []

@triton.jit
def copy(x, y, scale, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * scale, mask=i < n)

def prune(configs, named, **keywords):
    seen.append((named, keywords))
    return configs

tuned = whet.autotune(
    [triton.Config({"BLOCK": size}) for size in (16, 32, 64)],
    key=["n"], prune_configs_by={"early_config_prune": prune},
)(copy)
tuned.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])
"""


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, binaries: Path) -> Iterator[Any]:
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(binaries))
    monkeypatch.delenv("WHET_POLICY", raising=False)
    Path("recorded_program.py").write_text(PROGRAM)
    with own_modules("recorded_program"), fake_driver() as fake:
        yield fake


def program() -> Any:
    """As it is in a process of its own."""
    sys.modules.pop("recorded_program", None)
    return load_module(Path("recorded_program.py").resolve())


def recorded(*args: Any, grid: Any = None, **keywords: Any) -> Miss:
    chosen = grid or (lambda meta: (triton_cdiv(meta["n"], meta["BLOCK"]),))
    with package.mode("record"):
        program().tuned[chosen](*args, **keywords)
    with package.open_store() as store:
        return store.missed()[-1]


def triton_cdiv(a: int, b: int) -> int:
    return -(-a // b)


def missed() -> list[Any]:
    with package.open_store() as store:
        return store.missed()


@pytest.mark.medium
def test_a_recorded_call_is_tuned_without_inputs(whet: Whet, driver: Any) -> None:
    x = torch.zeros(4, 50).t()[1:]
    miss = recorded(x, torch.zeros(196), 2.0, n=196)
    assert miss.positional == 3
    assert [grid.size for grid in miss.grids] == [(13,), (7,), (4,)]
    assert miss.arguments[0].placement == Placement((1, 50), 1, 0, 4)
    assert Miss.from_json(miss.to_json()) == miss

    driver.launches.clear()
    ran = whet("tune", "--missed", "-q")
    assert ran.code == 0, ran
    assert missed() == []
    assert {size for _, size in driver.launches} == {(13, 1, 1), (7, 1, 1), (4, 1, 1)}
    with package.mode("require"):
        kernel = program().tuned
        kernel[(1,)](x, torch.zeros(196), 2.0, n=196)
        assert kernel.best_config.kwargs["BLOCK"] == 64


@pytest.mark.medium
def test_the_arguments_are_as_they_were(whet: Whet, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = torch.zeros(64, dtype=torch.bfloat16)
    miss = recorded(whole[16:32].view(4, 4).t(), whole, scale=3, n=16, grid=(5,))
    assert miss.grids == (LaunchGrid({}, (5,)),)  # type: ignore[arg-type]
    grid, args, keywords = recorded_inputs("copy", miss)()
    x, y = args

    assert grid == (5,)
    assert keywords == {"scale": 3, "n": 16}
    assert (x.shape, x.stride(), x.dtype) == ((4, 4), (1, 4), torch.bfloat16)
    assert x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    assert x.data_ptr() - y.data_ptr() == 32
    assert y.float().std() > 0.5


@pytest.mark.medium
def test_small_integer_tensors_have_the_contents_that_they_had(whet: Whet) -> None:
    offsets = torch.tensor([[0, 7], [12, 16]], dtype=torch.int32).t()
    miss = recorded(offsets, torch.ones(4, dtype=torch.bool), 2.0, n=16)
    assert [one.value for one in miss.arguments[:2]] == [(0, 12, 7, 16), (True,) * 4]
    _, (x, y, scale), _ = recorded_inputs("copy", Miss.from_json(miss.to_json()))()
    assert (x.tolist(), x.stride(), x.dtype) == ([[0, 12], [7, 16]], (1, 2), torch.int32)
    assert (y.tolist(), scale) == ([True] * 4, 2.0)
    assert whet("tune", "--missed", "-q").code == 0
    assert missed() == []


@pytest.mark.medium
def test_nothing_of_floating_point_contents_is_kept(whet: Whet) -> None:
    miss = recorded(torch.ones(16), torch.zeros(16), 2.0, n=16)
    assert [one.value for one in miss.arguments[:2]] == [None, None]


@pytest.mark.medium
def test_what_cannot_be_made_again_is_named_with_the_reason(
    whet: Whet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHET_RECORD_VALUES", "0")
    recorded(torch.zeros(16, dtype=torch.int32), torch.zeros(16), 2.0, n=16)
    ran = whet("tune", "--missed", "-q")
    said = " ".join(ran.out.split())
    assert ran.code == 1
    assert "'x' is int32 with 16 elements" in said
    assert "WHET_RECORD_VALUES" in said
    assert "kernel inputs=" in said
    assert len(missed()) == 1


@pytest.mark.medium
def test_a_call_with_an_address_that_was_not_aligned_is_tuned_as_such(whet: Whet) -> None:
    memory = bytearray(4096)
    begin = int(torch.frombuffer(memory, dtype=torch.uint8).data_ptr())
    whole = torch.frombuffer(memory, dtype=torch.float32, offset=20 - begin % 16)
    miss = recorded(whole[:16], torch.zeros(16), 2.0, n=16)
    _, (x, _, _), _ = recorded_inputs("copy", miss)()
    assert (whole.data_ptr() % 16, x.data_ptr() % 16) == (4, 4)
    assert whet("tune", "--missed", "-q").code == 0
    assert missed() == []


@pytest.mark.medium
def test_a_miss_of_0_1_has_neither_placements_nor_grids(whet: Whet) -> None:
    miss = recorded(torch.zeros(16), torch.zeros(16), 2.0, n=16)
    old = miss.to_json()
    del old["grids"], old["positional"]
    for argument in old["arguments"]:
        argument.pop("placement", None)
    read = Miss.from_json(old)
    assert (read.grids, read.positional) == ((), 0)
    with package.open_store() as store:
        store.forget_missed([miss.workload.id])
        store.miss(read)
    ran = whet("tune", "--missed", "-q")
    assert ran.code == 1
    assert "no grid" in " ".join(ran.out.split())


LIBRARY = """
import triton
import triton.language as tl
from triton.runtime import autotuner

class Caching(autotuner.Autotuner):
    def run(self, *args, **kwargs):
        return super().run(*args, **kwargs)

def caching(configs, key):
    return lambda fn: Caching(fn, fn.arg_names, configs, key, None, None)

@triton.heuristics({"HAS_BIAS": lambda args: args["bias"] is not None})
@caching([triton.Config({"BLOCK": size}) for size in (16, 32)], key=["n"])
@triton.jit
def shift(x, bias, n, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    if HAS_BIAS:
        value += tl.load(bias)
    tl.store(x + i, value, mask=i < n)
"""


@pytest.mark.slow
def test_a_kernel_of_a_library_with_heuristics_and_a_subclass_is_tuned_from_its_record(
    whet: Whet, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whet.targets.triton.autotuner import Autotuner

    def timer(self: Any) -> Any:
        return told(lambda config: 1000.0 - config.kwargs["BLOCK"])()

    monkeypatch.setattr(Autotuner, "whet_timer", timer)
    Path("recorded_program.py").write_text(LIBRARY)
    package.install()
    try:
        x = torch.zeros(100)
        with package.mode("record"):
            kernel = program().shift
            kernel[lambda meta: (triton_cdiv(100, meta["BLOCK"]),)](x=x, bias=None, n=100)
            kernel[lambda meta: (triton_cdiv(100, meta["BLOCK"]),)](x=x, bias=x[3:], n=100)
    finally:
        package.uninstall()
    assert [miss.positional for miss in missed()] == [0, 0]
    assert {one.name: one.value for one in missed()[0].arguments}["HAS_BIAS"] is False
    ran = whet("tune", "--missed", "-q")
    assert ran.code == 0, ran
    assert missed() == []


@pytest.mark.medium
def test_a_bundle_takes_missed_keys_to_the_machine_that_tunes_them(
    whet: Whet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorded(torch.zeros(16), torch.zeros(16), 2.0, n=16)
    assert "1 missed key (" in whet("pack", "fleet.whet", "--missed").out
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "other.db"))
    assert "1 missed key new" in whet("store", "merge", "fleet.whet").out
    ran = whet("tune", "recorded_program.py:tuned", "--missed", "-q")
    assert ran.code == 0, ran
    assert missed() == []
    with package.mode("require"):
        kernel = program().tuned
        kernel[(1,)](torch.zeros(16), torch.zeros(16), 2.0, n=16)
        assert kernel.best_config.kwargs["BLOCK"] == 64


@pytest.mark.medium
def test_run_record_tunes_nothing_and_records(whet: Whet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_MODE", "tune")
    script = Path("script.py")
    script.write_text(
        "import torch\nfrom recorded_program import tuned\n"
        "tuned[(1,)](torch.zeros(16), torch.zeros(16), 2.0, 16)\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        assert whet("run", "--record", str(script)).code == 0
    finally:
        package.uninstall()
    [miss] = missed()
    assert miss.positional == 4
    with package.open_store() as store:
        assert store.workloads() == []
