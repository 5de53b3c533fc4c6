"""An implementation that launches a tuned Triton kernel: tuning that is part of the choice."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import time

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.testing.fake_triton import FakeTensor, fake_driver, told

pytestmark = pytest.mark.medium


@triton.jit
def double(out, x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, value * 2, mask=offsets < n)


def test_a_kernel_is_tuned_once_and_before_it_is_timed(monkeypatch, tmp_path):
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    configs = [triton.Config({"BLOCK": block}) for block in (128, 256)]
    kernel = whet.autotune(configs=configs, key=["n"])(double)
    kernel.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])

    def launched(out, x, n):
        kernel[(1,)](out, x, n)

    chosen = whet.choice(
        {"sleep": lambda out, x, n: time.sleep(0.02), "triton": launched},
        key=["n"],
        check=False,
        name="double",
    )
    with fake_driver():
        chosen(FakeTensor([0.0]), FakeTensor([1.0], address=8192), 4)
    assert list(chosen.picks.values()) == ["triton"]
    assert [config.kwargs["BLOCK"] for config in kernel.cache.values()] == [256]
    with whet.open_store(tmp_path / "store.db", read_only=True) as store:
        parameters = {name for known in store.workloads() for name in known.best.config}
        runs = [run for known in store.workloads() for run in store.runs(known.workload.id)]
    assert parameters >= {"implementation", "BLOCK"}
    assert len(runs) == 2, "one run of the kernel and one of the choice"


def test_the_source_of_a_choice_covers_the_kernels_it_uses():
    def other(block):
        @triton.jit
        def kernel(out, BLOCK: tl.constexpr):
            tl.store(out + tl.arange(0, BLOCK), block)

        def launched(out):
            kernel[(1,)](out, BLOCK=16)

        return whet.choice({"triton": launched}, name="same").source.fingerprint

    assert other(1) == other(1)
    assert other(1) != other(2)
