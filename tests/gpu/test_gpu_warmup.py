"""`whet.warmup` on a real device: what is tuned, what is computed, what is left as it was."""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# ruff: noqa: N803

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whet

torch: Any = pytest.importorskip("torch")
triton: Any = pytest.importorskip("triton")
tl: Any = pytest.importorskip("triton.language")

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

N = 1 << 20


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


def kernels() -> tuple[Any, Any]:
    configs = [triton.Config({"BLOCK": block}) for block in (64, 256, 1024, 4096)]

    @whet.autotune(configs=configs, key=["n"])
    @triton.jit
    def scale(x, y, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(y + offsets, tl.load(x + offsets, mask=mask) * 3, mask=mask)

    @whet.autotune(configs=configs, key=["n"])
    @triton.jit
    def add_to(total, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        value = tl.load(total + offsets, mask=mask) + tl.load(x + offsets, mask=mask)
        tl.store(total + offsets, value, mask=mask)

    return scale, add_to


def test_a_training_step_is_tuned_and_goes_on_as_if_nothing_had_been() -> None:
    scale, add_to = kernels()
    total = torch.zeros(N, device="cuda")

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            y = torch.empty_like(x)
            scale[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](x, y, N)
            return y

        @staticmethod
        def backward(context: Any, grad: Any) -> Any:
            grad = grad.contiguous()
            add_to[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](total, grad, N)
            return grad * 3

    weight = torch.nn.Parameter(torch.ones(N, device="cuda"))
    optimizer = torch.optim.Adam([weight])

    def step() -> None:
        optimizer.zero_grad()
        Scaled.apply(weight * torch.rand(N, device="cuda")).square().mean().backward()
        optimizer.step()

    torch.manual_seed(3)
    generator = torch.cuda.get_rng_state()
    done = whet.warmup(step)
    assert done.complete
    assert {one.kernel for one in done.kernels} == {"scale", "add_to"}
    assert torch.equal(weight, torch.ones_like(weight))
    assert torch.equal(total, torch.zeros_like(total))
    assert not optimizer.state
    assert torch.equal(torch.cuda.get_rng_state(), generator)
    step()
    torch.cuda.synchronize()
    assert float(total.abs().max()) > 0
    assert whet.warmup(step).calls == 1


def test_a_step_that_reads_its_results_gets_the_right_ones() -> None:
    scale, _ = kernels()
    x, read = torch.ones(N, device="cuda"), []

    def step() -> None:
        y = torch.empty_like(x)
        scale[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](x, y, N)
        read.append(float(y.sum()))

    assert whet.warmup(step).complete
    assert set(read) == {3.0 * N}
