"""`effort` of a Triton kernel: its own, or the settings'."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.core.errors import UsageError
from whet.core.run import Stop
from whet.testing.fake_triton import FakeTensor, fake_driver, told

pytestmark = pytest.mark.usefixtures("cold")

WARPS, STAGES, BLOCKS = (1, 2, 4, 8), (1, 2), (64, 128, 256)
SIZE = len(WARPS) * len(STAGES) * len(BLOCKS)


def tuner(**options):
    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * 2, mask=offsets < n)

    configs = [
        triton.Config({"BLOCK": block}, num_warps=warps, num_stages=stages)
        for block in BLOCKS
        for warps in WARPS
        for stages in STAGES
    ]
    made = whet.autotune(configs=configs, key=["n"], **options)(double)
    made.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"] + 10 * config.num_warps)
    return made


def tuned(made):
    with fake_driver():
        made[(1,)](FakeTensor([0.0] * 4), FakeTensor([1.0] * 4), 4)
    return made.whet_result.run


@pytest.mark.slow
def test_a_kernels_own_effort_outranks_the_settings(monkeypatch):
    monkeypatch.setenv("WHET_EFFORT", "full")
    run = tuned(tuner(effort="quick"))
    assert run.stopped is Stop.EFFORT
    assert run.tried < SIZE


@pytest.mark.slow
def test_without_one_of_its_own_the_settings_decide(monkeypatch):
    monkeypatch.setenv("WHET_EFFORT", "quick")
    assert tuned(tuner()).stopped is Stop.EFFORT


def test_an_unknown_effort_is_refused_where_it_is_written():
    with pytest.raises(UsageError, match="effort 'fast' is not valid; valid: full, quick"):
        tuner(effort="fast")
