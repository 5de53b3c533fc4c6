"""The measuring process without torch, on a real device and beside the one with it."""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.engine import log
from whet.targets.triton.isolated import bench as benches

torch: Any = pytest.importorskip("torch")
triton: Any = pytest.importorskip("triton")
tl: Any = pytest.importorskip("triton.language")

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

N = 1 << 22

Opened = list[tuple[bool, dict[str, float]]]


@pytest.fixture(autouse=True)
def caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    monkeypatch.setattr(log, "_said", set())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Of every bench: whether its process did without torch, and what its start-up took."""
    seen: Opened = []
    close = benches.IsolatedBench.close

    def noted(self: benches.IsolatedBench) -> None:
        seen.append((self.plain, dict(self.set_up)))
        close(self)

    monkeypatch.setattr(benches.IsolatedBench, "close", noted)
    return seen


def tuned_axpy(*blocks: int, far: int = 0) -> Any:
    """In a closure, as kernels in notebooks are. Only the block `far` reads what is not there."""

    @triton.jit
    def axpy(x, y, out, n, step, factor, BLOCK: tl.constexpr, FAR: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = offsets < n
        total = factor * tl.load(x + offsets * step, mask=inside) + tl.load(
            y + offsets, mask=inside
        )
        if BLOCK == FAR:
            total += tl.load(x + offsets.to(tl.int64) + (1 << 44))
        tl.store(out + offsets, total, mask=inside)

    configs = [triton.Config({"BLOCK": block, "FAR": far}) for block in blocks]
    return whet.autotune(configs=configs, key=["n"], isolate=True)(axpy)


def called(kernel: Any) -> None:
    x, y = torch.randn(N, device="cuda"), torch.randn(N, device="cuda")
    out = torch.zeros_like(x)
    grid: Callable[[Any], tuple[int]] = lambda meta: (triton.cdiv(N, meta["BLOCK"]),)  # noqa: E731
    kernel[grid](x, y, out, N, 1, 0.5)
    torch.testing.assert_close(out, 0.5 * x + y)


def found(kernel: Any) -> dict[Any, Any]:
    return {trial.config["BLOCK"]: trial for trial in kernel.whet_result.trials}


def test_a_plain_call_is_measured_without_torch_and_as_with_it(
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    recwarn: pytest.WarningsRecorder,
) -> None:
    bare = tuned_axpy(128, 512, 1024)
    called(bare)
    monkeypatch.setattr(benches, "is_plain", lambda call, configs, ipc_call: False)
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "other.db"))
    full = tuned_axpy(128, 512, 1024)
    called(full)
    assert [plain for plain, _ in opened] == [True, False]
    print("set-up", {name: round(s, 3) for name, s in opened[0][1].items()})
    one, other = found(bare), found(full)
    assert one.keys() == other.keys() == {128, 512, 1024}
    for block, trial in one.items():
        beside = other[block]
        assert trial.status.measured
        assert beside.status.measured
        assert trial.facts == beside.facts
        times = [statistics.median(each.timing.samples) for each in (trial, beside)]
        print(f"BLOCK={block}: {times[0]:.0f} ns without torch, {times[1]:.0f} ns with it")
    assert [str(w.message) for w in recwarn if "isolated" in str(w.message)] == []


def test_an_illegal_access_fails_alone_and_this_process_works_on(opened: Opened) -> None:
    kernel = tuned_axpy(128, 256, 512, far=256)
    called(kernel)
    assert [plain for plain, _ in opened] == [True]
    statuses = {block: trial.status for block, trial in found(kernel).items()}
    assert statuses[256] is whet.Status.RUN_ERROR
    assert statuses[128].measured
    assert statuses[512].measured
    assert float(torch.full((1 << 20,), 2.0, device="cuda").sum()) == 2.0 * (1 << 20)


def test_configs_with_clusters_are_measured_by_a_process_with_torch(opened: Opened) -> None:
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("needs clusters")
    kernel = tuned_axpy(512, 1024)
    kernel.configs[1].num_ctas = 2
    called(kernel)
    assert [plain for plain, _ in opened] == [False]
    assert {trial.status.measured for trial in found(kernel).values()} == {True}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_much_shared_memory_and_every_dtype(dtype: str, opened: Opened) -> None:
    """A product of matrices with stages, whose shared memory has to be asked for."""
    size = 1024

    @triton.jit
    def product(a, b, c, n, BLOCK: tl.constexpr, DEEP: tl.constexpr):
        rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        deep = tl.arange(0, DEEP)
        total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for start in range(0, n, DEEP):
            left = tl.load(a + rows[:, None] * n + (start + deep)[None, :])
            right = tl.load(b + (start + deep)[:, None] * n + columns[None, :])
            total = tl.dot(left, right, total)
        tl.store(c + rows[:, None] * n + columns[None, :], total)

    configs = [
        triton.Config({"BLOCK": 128, "DEEP": deep}, num_stages=4, num_warps=8) for deep in (32, 64)
    ]
    kernel: Any = whet.autotune(configs=configs, key=["n"], isolate=True)(product)
    a, b = (torch.randn(size, size, device="cuda", dtype=getattr(torch, dtype)) for _ in "ab")
    c = torch.zeros(size, size, device="cuda", dtype=torch.float32)
    kernel[lambda meta: (size // meta["BLOCK"], size // meta["BLOCK"])](a, b, c, size)
    assert [plain for plain, _ in opened] == [True]
    trials = kernel.whet_result.trials
    measured = [trial for trial in trials if trial.status.measured]
    assert measured
    assert all(trial.status is whet.Status.RESOURCES for trial in trials if trial not in measured)
    assert max(trial.facts["shared_bytes"] for trial in measured) > 48 << 10
