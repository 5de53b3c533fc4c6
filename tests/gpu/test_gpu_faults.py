"""`isolate=True` on a real device: configs that crash, hang, exhaust, assert or lie."""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# ruff: noqa: N803

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.engine import log

torch: Any = pytest.importorskip("torch")
triton: Any = pytest.importorskip("triton")
tl: Any = pytest.importorskip("triton.language")

# The measuring process imports from here, too: it gets this process's paths.
BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")
if BENCHMARKS not in sys.path:
    sys.path.insert(0, BENCHMARKS)

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

N = 4096


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    monkeypatch.setenv("WHET_STORE", str(path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("WHET_RUN_LIMIT", "10s")
    monkeypatch.setattr(log, "_said", set())
    return path


def trials(store: Path) -> list[whet.Trial]:
    with whet.open_store(store, read_only=True) as opened:
        return [trial for known in opened.workloads() for trial in opened.trials(known.workload.id)]


def configs(*blocks: int) -> list[Any]:
    return [triton.Config({"BLOCK": block}) for block in blocks]


def grid_over(n: int) -> Callable[[Any], tuple[int]]:
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def tuned_add(**options: Any) -> Any:
    """In a closure, as kernels in notebooks are: nobody else can import it."""

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = offsets < n
        total = tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside)
        tl.store(out + offsets, total, mask=inside)

    options.setdefault("isolate", True)
    options.setdefault("configs", configs(256, 512, 1024))
    return whet.autotune(key=["n"], **options)(add)


def total(arguments: Any) -> dict[str, Any]:
    return {"out": arguments["x"] + arguments["y"]}


def assert_works() -> None:
    """This process can launch and allocate."""
    room = torch.full((1 << 26,), 2.0, device="cuda")
    assert float(room.sum()) == 2.0 * (1 << 26)


def quiet(recwarn: pytest.WarningsRecorder) -> None:
    """Nothing said that anything was measured in this process."""
    assert [str(w.message) for w in recwarn if "not isolated" in str(w.message)] == []


@pytest.mark.parametrize("kind", ["FAR", "ENDLESS", "MEMORY", "ASSERT", "WRONG"])
def test_a_poisoned_config_fails_alone_with_its_own_status(
    kind: str, store: Path, recwarn: pytest.WarningsRecorder
) -> None:
    import poisoned
    import poisoned_kernel

    poison = getattr(poisoned_kernel, kind)
    space = {"poisons": {poison: 1}, "count": 5}
    row = poisoned.tuned(1, store, isolate=True, space=space)
    assert row["wrong"] == []
    assert row["poisons"][poisoned_kernel.NAMES[poison]] == [poisoned_kernel.STATUS[poison]]
    assert row["best_is_right"]
    assert row["result_is_right"]
    assert row["still_works"]
    quiet(recwarn)


def test_all_of_them_among_forty(store: Path) -> None:
    import poisoned

    row = poisoned.tuned(0, store, isolate=True)
    assert row["wrong"] == []
    assert poisoned.right(row)
    assert_works()


def test_the_copies_are_what_the_arguments_are(
    store: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Views into one storage that do not begin at its start, among others."""
    base = torch.randn(4 * N, device="cuda")
    before = base.clone()
    x, y, out = base[3 : 3 + N], base[N : 3 * N : 2], base[3 * N :]
    y = y.contiguous()
    kernel = tuned_add(check=total)
    kernel[grid_over(N)](x, y, out, N)
    assert torch.equal(out, x + y)
    assert torch.equal(base[: 3 * N], before[: 3 * N])
    assert {trial.status.measured for trial in trials(store)} == {True}
    quiet(recwarn)


def test_an_output_over_an_input_is_restored_for_every_config(store: Path) -> None:
    x, y = torch.randn(N, device="cuda"), torch.randn(N, device="cuda")
    expected = x + y
    tuned_add(check=lambda arguments: {"out": expected})[grid_over(N)](x, y, x, N)
    assert torch.equal(x, expected)
    assert {trial.status.measured for trial in trials(store)} == {True}


@pytest.mark.parametrize("options", [{"check": "agree"}, {"use_cuda_graph": True}, {}])
def test_it_tunes_as_in_process(
    options: dict[str, Any], store: Path, recwarn: pytest.WarningsRecorder
) -> None:
    x, y = torch.randn(N, device="cuda"), torch.randn(N, device="cuda")
    out = torch.full((N,), math.nan, device="cuda")
    tuned_add(**options)[grid_over(N)](x, y, out, N)
    assert torch.equal(out, x + y)
    found = trials(store)
    assert len(found) == 3
    assert {trial.status.measured for trial in found} == {True}
    assert all(trial.facts["registers"] for trial in found)
    quiet(recwarn)


def test_a_descriptor_is_rebuilt_around_the_copy(
    store: Path, recwarn: pytest.WarningsRecorder
) -> None:
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("needs TMA")
    from triton.tools.tensor_descriptor import TensorDescriptor

    @triton.jit
    def double(tile, out, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
        value = tile.load([0, 0])
        rows = tl.arange(0, 64)[:, None]
        columns = tl.arange(0, 64)[None, :]
        tl.store(out + rows * n + columns, value * 2 + 0 * STEP)

    listed = [
        triton.Config({"BLOCK": 64, "STEP": step}, num_warps=w) for step, w in ((1, 4), (2, 8))
    ]
    kernel = whet.autotune(configs=listed, key=["n"], isolate=True, check="agree")(double)
    x = torch.randn(64, 64, device="cuda")
    out = torch.zeros_like(x)
    kernel[(1,)](TensorDescriptor.from_tensor(x, [64, 64]), out, 64)
    assert torch.equal(out, 2 * x)
    assert {trial.status.measured for trial in trials(store)} == {True}
    quiet(recwarn)


def test_a_kernel_that_needs_memory_of_its_own_is_given_it(store: Path) -> None:
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("needs TMA")

    @triton.jit
    def double(x, out, n, BLOCK: tl.constexpr):
        source = tl.make_tensor_descriptor(x, [n, n], [n, 1], [BLOCK, BLOCK])
        target = tl.make_tensor_descriptor(out, [n, n], [n, 1], [BLOCK, BLOCK])
        for row in range(0, n, BLOCK):
            for column in range(0, n, BLOCK):
                target.store([row, column], source.load([row, column]) * 2)

    triton.set_allocator(
        lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda")
    )
    kernel = whet.autotune(configs=configs(32, 64), key=["n"], isolate=True)(double)
    x = torch.randn(128, 128, device="cuda")
    out = torch.zeros_like(x)
    kernel[(1,)](x, out, 128)
    assert torch.equal(out, 2 * x)
    assert {trial.status.measured for trial in trials(store)} == {True}


SCRIPT = """
import warnings
import torch, triton, triton.language as tl
import whet

warnings.filterwarnings("error", message=".*not isolated.*")

@whet.autotune(
    configs=[triton.Config({"BLOCK": block}) for block in (256, 512)], key=["n"], isolate=True,
    check=lambda arguments: {"out": 2 * arguments["x"]},
)
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)

x = torch.randn(4096, device="cuda")
out = torch.zeros_like(x)
double[(16,)](x, out, 4096)
assert torch.equal(out, 2 * x)
print(sorted(trial.status.value for trial in double.whet_result.trials))
"""


@pytest.mark.parametrize("allocator", ["", "expandable_segments:True", "backend:cudaMallocAsync"])
def test_memory_that_the_driver_does_not_share_goes_through_the_host(
    allocator: str, tmp_path: Path
) -> None:
    """From a script, whose kernel lives in `__main__`."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    variables = {"PYTORCH_CUDA_ALLOC_CONF": allocator} if allocator else {}
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "error" not in done.stdout
    assert "ok" in done.stdout


def test_a_hook_of_this_process_only_is_said_and_measured_here(store: Path) -> None:
    seen: list[int] = []
    listed = [
        triton.Config({"BLOCK": block}, pre_hook=lambda arguments: seen.append(arguments["BLOCK"]))
        for block in (256, 512)
    ]
    x, y = torch.randn(N, device="cuda"), torch.randn(N, device="cuda")
    with pytest.warns(RuntimeWarning, match="not isolated: the hook"):
        tuned_add(configs=listed)[grid_over(N)](x, y, torch.zeros_like(x), N)
    assert set(seen) == {256, 512}


def test_nothing_is_left_behind(store: Path) -> None:
    x, y = torch.randn(N, device="cuda"), torch.randn(N, device="cuda")
    out = torch.zeros_like(x)
    kernel = tuned_add()
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    kernel[grid_over(N)](x, y, out, N)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= held
    files = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert [path for path in files if "whet-arguments" in path] == []
