"""Kernels under `@triton.autotune` on the command line, in files that are not touched."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, own_modules, refused
from whet.targets.triton.offline.kernel import taken_over
from whet.testing.fake_triton import fake_driver, told

pytest.importorskip("triton")

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="the file asks torch for a device"
)

STOCK = """
import triton
import triton.language as tl

print("the file runs")

@triton.autotune([triton.Config({"BLOCK": size}) for size in (16, 32)], key=["n"])
@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)
"""

INPUTS = """
from whet.testing.fake_triton import FakeTensor

def make(n):
    return (1,), (FakeTensor([0.0]), FakeTensor([0.0]), n)

def wrong(n):
    return FakeTensor([0.0]), n
"""

# As Triton's tutorials do: the configs depend on the device, and kernels are launched below.
ASKING = """
import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()
backend = triton.runtime.driver.active.get_current_target().backend
SIZES = (16, 32) if backend == "cuda" else (64,)
MAJOR, MINOR = torch.cuda.get_device_capability()

@triton.autotune([triton.Config({"BLOCK": size}) for size in SIZES], key=["n"])
@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

def make(n):
    x = torch.randn(n, device=DEVICE)
    return (1,), (x, torch.empty_like(x), n)

x = torch.randn(1024, device=DEVICE)
copy[(1,)](x, x, 1024)
raise AssertionError("a launch must end the file")
"""


@pytest.fixture(autouse=True)
def _place(binaries: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(binaries))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setenv("WHET_STORE", "store.db")
    Path("lib.py").write_text(STOCK)
    Path("mine.py").write_text(INPUTS)
    with own_modules("pack", "lib", "mine"):
        yield


@pytest.fixture
def _timed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A GPU on which blocks of 32 take the shorter time."""

    def timed(value: Any) -> Any:
        kernel = taken_over(value)
        if kernel is not None:
            kernel.tuner.whet_timer = told(lambda config: 9000.0 / config.kwargs["BLOCK"])
        return kernel

    monkeypatch.setattr("whet.targets.triton.offline.kernel.taken_over", timed)
    with fake_driver():
        yield


@pytest.mark.medium
@pytest.mark.usefixtures("_timed")
def test_a_stock_kernel_is_tuned_with_inputs_from_another_file(whet: Whet) -> None:
    ran = whet("tune", "lib.py:copy", "--key", "n=64", "--inputs", "mine.py:make", "-q")
    assert ran.code == 0, ran.err
    assert "BLOCK=32" in ran.out
    assert "2.00× as fast" in ran.out


@pytest.mark.medium
@pytest.mark.usefixtures("_timed")
def test_the_only_stock_kernel_of_a_file_needs_no_name(whet: Whet) -> None:
    ran = whet("tune", "lib.py", "--key", "n=64", "--inputs", "mine.py:make", "-q", "--json")
    assert json.loads(ran.out)["kernel"] == "copy"


@pytest.mark.medium
@pytest.mark.usefixtures("_timed")
def test_inputs_from_the_kernels_own_file_do_not_run_it_twice(whet: Whet) -> None:
    Path("lib.py").write_text(STOCK + INPUTS)
    ran = whet("tune", "lib.py:copy", "--key", "n=64", "--inputs", "lib.py:make", "-q")
    assert ran.code == 0, ran.err
    assert ran.err.count("the file runs") == 1


def test_without_inputs_the_message_shows_what_they_look_like(whet: Whet) -> None:
    for command in ("tune", "precompile"):
        more = ["--arch", "h100"] if command == "precompile" else []
        ran = whet(command, "lib.py:copy", "--key", "n=64", *more)
        assert ran.code == 2
        assert "give --inputs FILE.py:FUNCTION" in ran.err
        assert ran.err.endswith(
            "  def inputs(n):\n"
            '      grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)\n'
            "      return grid, (x_ptr, y_ptr, n)  # tensors and numbers, in this order\n"
        )


@pytest.mark.usefixtures("_timed")
def test_inputs_of_a_wrong_shape_are_shown_beside_the_right_one(whet: Whet) -> None:
    err = refused(whet("tune", "lib.py:copy", "--key", "n=64", "--inputs", "mine.py:wrong", "-q"))
    assert "mine.py: " in err
    assert "kernel 'copy' returned (FakeTensor, int)" in err
    assert "\n      return grid, (x_ptr, y_ptr, n)" in err


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ("mine.py:mak", "mine.py has no function 'mak'; did you mean 'make'?"),
        ("mine.py", "use FILE.py:FUNCTION"),
        ("none.py:make", "no such file: none.py"),
    ],
)
def test_inputs_that_are_not_there_are_one_line(whet: Whet, inputs: str, said: str) -> None:
    assert said in refused(
        whet("precompile", "lib.py:copy", "--arch=h100", "--key=n=64", "--inputs", inputs)
    )


def test_what_is_no_triton_kernel_takes_no_inputs(whet: Whet) -> None:
    Path("f.py").write_text(
        "import whet\nf = whet.function(lambda a: a, {'a': [1, 2]}, name='f')\n"
    )
    assert "'f' takes no --inputs" in refused(whet("tune", "f.py:f", "--inputs", "mine.py:make"))


@pytest.mark.medium
def test_a_stock_kernel_is_precompiled_for_gpus_by_their_names(whet: Whet) -> None:
    ran = whet("precompile", "lib.py:copy", "--arch=h100", "--key=n=64", "--inputs=mine.py:make")
    assert ran.code == 0, ran.err
    assert ran.widest <= 80
    assert "\nh100 (sm_90)  " in ran.out
    assert "2 of 2 compiled" in ran.out
    assert "spilled: bytes" in ran.said
    assert "occ.: resident warps" in ran.said
    row = next(line for line in ran.out.splitlines() if line.startswith("h100"))
    assert " 0 B " in row
    assert "%" in row


@pytest.mark.medium
@needs_torch
def test_a_file_that_asks_for_a_gpu_is_run_once_for_each_up_to_the_first_launch(whet: Whet) -> None:
    Path("lib.py").write_text(ASKING)
    arguments = ("lib.py:copy", "--arch=h100,mi300x", "--key=n=64", "--inputs=lib.py:make")
    ran = whet("precompile", *arguments, "--json")
    assert ran.code == 0, ran.err
    found = [
        (one["architecture"], one["gpus"], one["config"]["BLOCK"])
        for one in json.loads(ran.out)["builds"]
    ]
    assert found == [
        ("sm_90", ["h100"], 16),
        ("sm_90", ["h100"], 32),
        ("gfx942", ["mi300x"], 64),
    ]
    assert "no h100 (sm_90)" in ran.err
    assert "since 'copy'" in ran.err


@pytest.mark.medium
@needs_torch
def test_configs_of_gpus_that_have_other_parameters_are_tables_of_their_own(whet: Whet) -> None:
    asking = ASKING.replace('{"BLOCK": size}', '{"BLOCK": size} | more')
    Path("lib.py").write_text(
        asking.replace("MAJOR", 'more = {"waves_per_eu": 2} if backend == "hip" else {}\nMAJOR')
    )
    arguments = ("lib.py:copy", "--arch=h100,mi300x", "--key=n=64", "--inputs=lib.py:make")
    ran = whet("precompile", *arguments)
    assert ran.code == 0, ran.err
    assert [line.split()[0] for line in ran.out.splitlines() if "shared " in line] == [
        "arch",
        "arch",
    ]


def packaged(init: str) -> None:
    Path("pack/ops").mkdir(parents=True)
    Path("pack/__init__.py").write_text(init)
    Path("pack/ops/__init__.py").write_text("")
    Path("pack/sizes.py").write_text("SIZES = (16, 32)\n")
    text = STOCK.replace("(16, 32)", "SIZES")
    Path("pack/ops/copying.py").write_text(f"from ..sizes import SIZES\n{text}")


def precompiled_package(whet: Whet) -> Any:
    arguments = ("--arch=sm_90", "--key=n=64", "--inputs=mine.py:make")
    return whet("precompile", os.path.join("pack", "ops", "copying.py:copy"), *arguments)


@pytest.mark.medium
def test_a_file_that_imports_from_its_package_is_run_as_a_part_of_it(whet: Whet) -> None:
    packaged("")
    ran = precompiled_package(whet)
    assert ran.code == 0, ran.err
    assert "2 of 2 compiled" in ran.out


@pytest.mark.medium
def test_a_package_that_cannot_be_imported_here_need_not_be(whet: Whet) -> None:
    packaged("import no_such_module_anywhere\n")
    ran = precompiled_package(whet)
    assert ran.code == 0, ran.err
    assert "package 'pack' (ModuleNotFoundError" in ran.err
