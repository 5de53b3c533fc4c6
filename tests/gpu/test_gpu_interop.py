"""Stock Triton reads what whet measured on a real device, and whet what stock measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whet.cli import main
from whet.store import open_store
from whet.targets.files import load_module

torch: Any = pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

KERNEL = """
import triton
import triton.language as tl
DECORATOR

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b in (64, 1024) for w in (4, 8)]


@tune(configs=CONFIGS, key=["n"]EXTRA)
@triton.jit
def double(out, x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, 2 * tl.load(x + offsets, mask=offsets < n), mask=offsets < n)
"""
OURS = KERNEL.replace("DECORATOR", "from whet import autotune as tune").replace("EXTRA", "")
STOCK = KERNEL.replace("DECORATOR", "from triton import autotune as tune").replace(
    "EXTRA", ", cache_results=True"
)
SIZES = (1 << 20, 1 << 22)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    place = tmp_path / "triton"
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(place))
    return place


def load(path: Path, text: str) -> Any:
    path.write_text(text)
    return load_module(path).double


def launch(kernel: Any, n: int) -> None:
    x = torch.arange(n, device="cuda", dtype=torch.float32)
    out = torch.empty_like(x)
    kernel[lambda meta: (-(-n // meta["BLOCK"]),)](out, x, n)
    torch.testing.assert_close(out, 2 * x)


def no_benchmark(call: Callable[[], None], quantiles: Any) -> list[float]:
    raise AssertionError("stock Triton benchmarks what it should have read")


def test_stock_reads_what_whet_measured(tmp_path: Path) -> None:
    path = tmp_path / "ours.py"
    ours = load(path, OURS)
    for n in SIZES:
        launch(ours, n)
    picks = {key[0]: config for key, config in ours.cache.items()}
    assert main(["export", "triton", f"{path}:double"]) == 0
    stock = load(tmp_path / "stock.py", STOCK)
    stock._do_bench = no_benchmark
    for n in SIZES:
        launch(stock, n)
        assert stock.best_config.all_kwargs() == picks[n].all_kwargs()


def test_whet_reads_what_stock_measured(tmp_path: Path, cache: Path) -> None:
    stock = load(tmp_path / "stock.py", STOCK)
    for n in SIZES:
        launch(stock, n)
    names = "n,out.dtype,x.dtype"
    assert main(["import", "triton", str(cache), "--device", "H200", "--names", names]) == 0
    with open_store(tmp_path / "store.db", read_only=True) as store:
        known = store.workloads("double")
        assert sorted(summary.workload.key["n"] for summary in known) == sorted(SIZES)
        assert all(summary.best_config is not None for summary in known)
