"""A kernel's new key after its calls have waited long enough for tunings."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.targets.triton.dispatch import StandInLaunches
from whet.testing.fake_triton import FakeTensor, fake_driver, told


def kernel_of(**options):
    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * 2, mask=offsets < n)

    listed = [triton.Config({"BLOCK": block}) for block in (256, 128)]
    options = {"wait_limit": "1ms", "buckets": {"n": "pow2"}, **options}
    kernel = whet.autotune(configs=listed, key=["n"], **options)(double)
    kernel.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    return kernel


@pytest.fixture(autouse=True)
def driver():
    with fake_driver() as fake:
        yield fake


def call(kernel, n):
    kernel[(1,)](FakeTensor([0.0] * 4), FakeTensor([1.0] * 4, address=8192), n)
    return kernel.best_config.kwargs["BLOCK"]


def standing(kernel):
    """What is called in place of a tuning."""
    return [
        known[2]
        for table in kernel.cache.tables.values()
        for plan in table.plans.values()
        for known in plan.known.values()
        if isinstance(known[2], StandInLaunches)
    ]


def test_a_new_key_takes_the_best_of_the_nearest_and_is_tuned_when_that_pays(cold):
    kernel = kernel_of()
    assert [call(kernel, 16), call(kernel, 32), call(kernel, 30)] == [128, 128, 128]
    assert list(kernel.cache) == [(16, "torch.float32", "torch.float32")]
    (one,) = standing(kernel)
    assert one.left > 1000
    one.left = 2
    call(kernel, 32)
    assert list(kernel.cache) == [(16, "torch.float32", "torch.float32")]
    call(kernel, 31)
    assert not standing(kernel)
    call(kernel, 32)
    assert [key[0] for key in kernel.cache] == [16, 32]
    assert len(cold.workloads()) == 2


def test_another_kernel_s_waiting_does_not_count(cold):
    one, other = kernel_of(), kernel_of()
    call(one, 16)
    call(other, 64)
    assert [key[0] for key in other.cache] == [64]


@pytest.mark.parametrize("option", [{"wait_limit": None}, {"wait_limit": "1h"}])
def test_without_a_limit_every_key_is_tuned(cold, option):
    kernel = kernel_of(**option)
    call(kernel, 16)
    call(kernel, 32)
    assert [key[0] for key in kernel.cache] == [16, 32]


@pytest.mark.parametrize(
    "option", [{"check": "bitwise"}, {"do_bench": lambda call, quantiles: [1.0] * 3}]
)
def test_where_something_must_be_held_every_key_is_tuned(cold, option):
    kernel = kernel_of(**option)
    call(kernel, 16)
    call(kernel, 32)
    assert [key[0] for key in kernel.cache] == [16, 32]


def test_a_config_that_pruning_leaves_out_does_not_stand_in(cold):
    def pruned(configs, named, **meta):
        return configs if named["n"] < 32 else [one for one in configs if one.kwargs["BLOCK"] > 128]

    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)

    listed = [triton.Config({"BLOCK": block}) for block in (512, 256, 128)]
    kernel = whet.autotune(
        configs=listed, key=["n"], prune_configs_by={"early_config_prune": pruned}, wait_limit="1ms"
    )(double)
    kernel.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    assert [call(kernel, 16), call(kernel, 32)] == [128, 256]


def test_a_store_that_is_lost_does_not_stop_a_call(cold, monkeypatch):
    kernel = kernel_of()
    call(kernel, 16)
    monkeypatch.setenv("WHET_STORE", "/proc/no/store.db")
    assert call(kernel, 32) == 128
    assert [key[0] for key in kernel.cache] == [16, 32]


def test_a_cleared_cache_begins_anew(cold):
    kernel = kernel_of()
    call(kernel, 16)
    call(kernel, 32)
    kernel.cache.clear()
    assert not standing(kernel)
    assert call(kernel, 32) == 128
    assert len(standing(kernel)) == 1
