"""`whet warmup` on a file's function."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_runs import Whet, refused
from whet.testing.fake_triton import fake_driver

pytest.importorskip("triton")

pytestmark = pytest.mark.medium

FILE = """
import triton
import triton.language as tl
from whet.testing.fake_triton import FakeTensor, told

@triton.autotune([triton.Config({"BLOCK": size}) for size in (16, 32, 64)], key=["n"])
@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

copy.whet_timer = told(lambda config: 1e3 if config.kwargs["BLOCK"] == 32 else 4e3)

def step():
    print("a step")
    copy[(1,)](FakeTensor([0.0]), FakeTensor([0.0]), 64)

def wants(batch, lr=1):
    pass

number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    import whet

    path = tmp_path / "train.py"
    path.write_text(FILE)
    with fake_driver():
        yield path
    whet.uninstall()


@pytest.fixture
def store(tmp_path: Path, binaries: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(binaries))
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))  # the command sets it, too
    return str(tmp_path / "store.db")


@pytest.mark.slow
def test_the_kernels_of_a_step_are_tuned_and_listed(whet: Whet, file: Path, store: str) -> None:
    ran = whet("warmup", f"{file}:step", "--store", store)
    assert ran.code == 0
    assert "4.00×" in ran.out
    assert "BLOCK=32" in ran.out
    assert "1 of 1 kernel tuned" in ran.out
    assert "a step" not in ran.out
    again = whet("warmup", f"{file}:step", "--store", store)
    assert again.code == 0
    assert "nothing to tune" in again.out


@pytest.mark.slow
def test_json_has_the_same(whet: Whet, file: Path, store: str) -> None:
    done = json.loads(whet("warmup", f"{file}:step", "--store", store, "--json", "-q").out)
    assert done["complete"]
    assert [one["config"]["BLOCK"] for one in done["kernels"]] == [32]


def test_a_budget_that_ends_it_is_an_exit_code(whet: Whet, file: Path, store: str) -> None:
    ran = whet("warmup", f"{file}:step", "--store", store, "--budget", "1ms")
    assert ran.code == 1
    assert "not tuned: copy" in ran.out
    assert "budget ran" in ran.out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (":wants", "needs arguments (batch)"),
        (":stpe", "did you mean 'step'?"),
        (":number", "is not a function"),
        ("", "use FILE.py:STEP"),
    ],
)
def test_what_cannot_be_called_is_refused(
    whet: Whet, file: Path, store: str, name: str, said: str
) -> None:
    assert said in refused(whet("warmup", f"{file}{name}", "--store", store))
