"""Kernels of subclasses of Triton's `Autotuner` on a real device, taken before and after."""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# ruff: noqa: N803

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whet

torch: Any = pytest.importorskip("torch")
triton: Any = pytest.importorskip("triton")
tl: Any = pytest.importorskip("triton.language")
stock: Any = pytest.importorskip("triton.runtime.autotuner")

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

N = 4096


class Super(stock.Autotuner):
    def run(self, *args: Any, **kwargs: Any) -> Any:
        return super().run(*args, **kwargs)


class ByName(stock.Autotuner):
    def run(self, *args: Any, **kwargs: Any) -> Any:
        return stock.Autotuner.run(self, *args, **kwargs)


class Loop(stock.Autotuner):
    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        if "best" not in self.cache:
            self.timings = {
                config: self._bench(*args, config=config, **kwargs)
                for config in self.prune_configs(kwargs)
            }
            self.cache["best"] = min(self.timings, key=lambda config: self.timings[config])
        self.best_config = self.cache["best"]
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    gc.collect()  # kernels of earlier tests would be listed too
    yield tmp_path / "store.db"
    whet.uninstall()


def made(kind: Any) -> Any:
    """It adds in place, so that a tuning that does not put things back is seen."""

    @triton.jit
    def add(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        value = tl.load(out + offsets, mask=mask) + tl.load(x + offsets, mask=mask)
        tl.store(out + offsets, value, mask=mask)

    configs = [triton.Config({"BLOCK": block}) for block in (128, 256, 1024)]
    return kind(add, add.arg_names, configs, ["n"], None, None)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("kind", [stock.Autotuner, Super, ByName, Loop])
def test_a_taken_kernel_is_tuned_and_computes_what_it_should(
    kind: Any, before: bool, store: Path
) -> None:
    if before:
        whet.install()
    kernel = made(kind)
    whet.install()
    out, x = torch.zeros(N, device="cuda"), torch.ones(N, device="cuda")
    for _ in range(3):
        kernel[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](out, x, N)

    assert torch.equal(out, x * 3)
    (one,) = [one for one in whet.installed() if one.place.startswith(__file__)]
    assert one.how in ("taken", "subclass")
    assert (one.keys, one.called) == (1, True)
    if kind is Loop:
        assert all(0 < times[0] < 1 for times in kernel.timings.values())
    else:
        with whet.open_store(store, read_only=True) as opened:
            (known,) = opened.workloads()
            assert len(opened.trials(known.workload.id)) == 3
    whet.uninstall()
    assert type(kernel) is kind
    kernel[(triton.cdiv(N, 128),)](out, x, N)
    assert torch.equal(out, x * 4)
