"""Triton kernels: recorded by a program, tuned from the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, own_modules

pytest.importorskip("triton")

import whet as package
from whet.targets.files import load_module
from whet.testing.fake_triton import FakeTensor, fake_driver

PROGRAM = """
import triton
import triton.language as tl
import whet
from whet.testing.fake_triton import FakeTensor, told

def inputs(n, dtype="float32"):
    return (1,), (FakeTensor([0.0], dtype), FakeTensor([0.0], dtype), n)

@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)

tuned = whet.autotune(
    [triton.Config({"BLOCK": size}) for size in (16, 32)],
    key=["n"], OPTIONS
)(copy)
tuned.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])
"""


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, binaries: Path) -> Iterator[None]:
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(binaries))
    with own_modules("program"), fake_driver():
        yield


def program(options: str = "inputs=inputs") -> Any:
    """A program's kernel, as it is in a process of its own."""
    Path("program.py").write_text(PROGRAM.replace("OPTIONS", options))
    return load_module(Path("program.py").resolve()).tuned


def call(kernel: Any, n: int, dtype: str = "float32") -> int:
    kernel[(1,)](FakeTensor([0.0], dtype), FakeTensor([0.0], dtype), n)
    return int(kernel.best_config.kwargs["BLOCK"])


def missed() -> list[Any]:
    with package.open_store() as store:
        return store.missed()


@pytest.mark.medium
def test_what_was_recorded_is_tuned_and_then_required_without_an_error(whet: Whet) -> None:
    with package.mode("record"):
        kernel = program()
        assert [call(kernel, 64), call(kernel, 8, "float16")] == [16, 16]
    ran = whet("tune", "--missed", "-q")
    assert ran.code == 0, ran
    assert missed() == []
    with package.mode("require"):
        kernel = program()
        assert [call(kernel, 64), call(kernel, 8, "float16")] == [32, 32]


@pytest.mark.medium
def test_the_command_that_require_names_fills_the_gap(whet: Whet) -> None:
    with package.mode("require"):
        with pytest.raises(package.NotTunedError) as told:
            call(program(), 8, "float16")
        command = str(told.value).partition("tune it with: whet ")[2].split()
        assert whet(*command, "-q").code == 0
        assert call(program(), 8, "float16") == 32


@pytest.mark.medium
def test_a_bucket_is_tuned_with_the_size_that_was_met(whet: Whet) -> None:
    options = 'inputs=inputs, buckets={"n": "pow2"}'
    with package.mode("record"):
        kernel = program(options)
        for n in (33, 40, 64):
            call(kernel, n)
    (miss,) = missed()
    assert dict(miss.workload.key)["n"] == 64
    assert whet("tune", "--missed", "-q").code == 0
    with package.mode("require"):
        assert call(program(options), 64) == 32


@pytest.mark.medium
def test_a_kernel_without_inputs_stays_and_the_remedy_is_told(whet: Whet) -> None:
    with package.mode("record"):
        call(program(""), 64)
    ran = whet("tune", "--missed", "-q")
    assert ran.code == 1
    assert "inputs=" in ran.out
    assert len(missed()) == 1


@pytest.mark.medium
def test_a_key_met_on_another_device_stays(whet: Whet) -> None:
    with package.mode("record"):
        call(program(), 64)
    with fake_driver(80):
        ran = whet("tune", "--missed", "-q")
    assert ran.code == 1
    said = " ".join(ran.out.split())
    assert "recorded on cuda 90" in said
    assert "cuda 80" in said
    assert len(missed()) == 1


@pytest.mark.medium
def test_inputs_that_want_more_than_the_call_tells_are_told_by_name(whet: Whet) -> None:
    with package.mode("record"):
        call(program("inputs=lambda n, batch: None"), 64)
    ran = whet("tune", "--missed", "-q")
    assert ran.code == 1
    assert "needs batch" in " ".join(ran.out.split())
