"""Kernels under Triton's own decorator, taken over with everything their author said."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.runtime import autotuner as stock

import whet
from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.offline.kernel import taken_over
from whet.testing.fake_triton import FakeTensor, fake_driver, told

CONFIGS = [triton.Config({"BLOCK": block}) for block in (16, 32, 64)]


@triton.jit
def copy(x_ptr, y_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def decorated(**options: Any) -> Any:
    return stock.autotune(CONFIGS, key=["n"], **options)(copy)


def over(value: Any) -> Any:
    kernel = taken_over(value)
    assert kernel is not None
    assert kernel.stock
    return kernel


def test_configs_and_key_are_the_authors() -> None:
    tuner = over(decorated()).tuner

    assert isinstance(tuner, Autotuner)
    assert tuner.configs == CONFIGS
    assert tuner.keys == ["n"]


def test_the_kernel_itself_stays_tritons() -> None:
    theirs = decorated()
    over(theirs)

    assert type(theirs) is stock.Autotuner


def test_the_authors_own_hooks_are_kept_and_tritons_are_made_anew() -> None:
    def hook(named: Any, reset_only: bool = False) -> None: ...

    ours = over(decorated(pre_hook=hook)).tuner
    reset = over(decorated(reset_to_zero=["y_ptr"], restore_value=["x_ptr"])).tuner
    y, x = FakeTensor([3.0]), FakeTensor([5.0])
    reset.pre_hook({"y_ptr": y, "x_ptr": x})

    assert ours.pre_hook is hook
    assert y.values == [0.0]
    assert reset.restore_copies["x_ptr"].values == [5.0]


def test_pruning_is_kept() -> None:
    def prune(configs: Any, named: Any, **more: Any) -> Any:
        return configs[1:]

    tuner = over(decorated(prune_configs_by={"early_config_prune": prune})).tuner
    tuner.nargs = {}

    assert tuner.prune_configs({}) == CONFIGS[1:]


@pytest.mark.filterwarnings("ignore:warmup, rep:DeprecationWarning")
def test_a_benchmark_of_the_authors_own_is_kept_as_that() -> None:
    def bench(call: Any, quantiles: Any) -> Any: ...

    assert over(decorated(do_bench=bench)).tuner._do_bench is bench
    assert not over(decorated(rep=9)).tuner.whet_own_benchmark
    assert over(decorated()).tuner.whet_own_benchmark


@pytest.mark.medium
def test_heuristics_around_it_go_on_to_compute(cold: Any) -> None:
    kernel = over(triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})(decorated()))
    kernel.tuner.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])

    with fake_driver():
        kernel.launcher[(1,)](FakeTensor([0.0] * 4), FakeTensor([0.0] * 4, address=8192), 4)

    assert kernel.tuner.best_config.kwargs == {"BLOCK": 64}
    assert cold.measured() == {16, 32, 64}


def test_what_has_no_stock_autotune_is_not_taken_over() -> None:
    assert taken_over(copy) is None
    assert taken_over(triton.heuristics({"EVEN": lambda args: True})(copy)) is None


@pytest.mark.medium
def test_results_are_those_of_a_program_under_install(cold: Any) -> None:
    """The same kernel, whether taken over or decorated by whet, is one workload."""
    ours = whet.autotune(CONFIGS, key=["n"])(copy)
    theirs = over(decorated()).tuner
    for tuner in (ours, theirs):
        tuner.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])
        with fake_driver():
            x, y = FakeTensor([0.0] * 4), FakeTensor([0.0] * 4, address=8192)
            tuner[(1,)](x, y, 4, EVEN=True)

    assert theirs.whet_result.source == "stored"
