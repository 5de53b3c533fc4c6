"""How a call whose config is known finds it."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.dispatch import Cache, DispatchPlan, shape_of
from whet.testing.fake_triton import FakeTensor, fake_driver, told

NAMES = ["out", "x", "n", "m"]
HALF, SINGLE = FakeTensor([1.0], "float16"), FakeTensor([1.0])


def plan(args, kwargs=None, keys=("n",), with_device=False):
    return DispatchPlan(keys, NAMES, args, kwargs or {}, with_device)


def test_the_key_is_the_named_values_and_the_dtypes_of_tensors():
    key = plan((HALF, SINGLE, 4)).key((HALF, SINGLE, 4), {})
    assert key == (4, HALF.dtype, SINGLE.dtype)


def test_arguments_outside_the_key_do_not_count():
    known = plan((SINGLE, SINGLE, 4, 1))
    assert known.key((SINGLE, SINGLE, 4, 1), {}) == known.key((SINGLE, SINGLE, 4, 2), {})


def test_a_dtype_counts_and_an_address_does_not():
    known = plan((SINGLE, SINGLE, 4))
    elsewhere = FakeTensor([2.0], address=8192)
    assert known.key((SINGLE, elsewhere, 4), {}) == known.key((SINGLE, SINGLE, 4), {})
    assert known.key((SINGLE, HALF, 4), {}) != known.key((SINGLE, SINGLE, 4), {})


def test_keywords_are_looked_up_by_name():
    known = plan((SINGLE,), {"n": 4, "x": HALF})
    assert known.key((SINGLE,), {"n": 7, "x": SINGLE}) == (7, SINGLE.dtype, SINGLE.dtype)


def test_a_plan_without_key_or_tensors_has_one_key():
    known = plan((1, 2), keys=())
    assert known.key((1, 2), {}) == known.key((3, 4), {}) == ()


def test_the_device_counts_where_there_are_several():
    other = FakeTensor([1.0])
    other.device = "fake:1"
    known = plan((SINGLE, SINGLE, 4), with_device=True)
    assert known.key((SINGLE, SINGLE, 4), {}) != known.key((other, SINGLE, 4), {})


def test_a_key_that_cannot_be_hashed_is_found_out_at_look_up():
    known = plan((SINGLE, SINGLE, [4]))
    with pytest.raises(TypeError):
        known.known[known.key((SINGLE, SINGLE, [4]), {})]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (((SINGLE, 4), {}), ((None, 4), {})),
        (((SINGLE, 4), {}), ((SINGLE, 4.0), {})),
        (((SINGLE,), {"n": 4}), ((SINGLE,), {"m": 4})),
        (((SINGLE,), {"x": SINGLE}), ((SINGLE,), {"x": None})),
        (((SINGLE,), {"n": 4}), ((SINGLE, 4), {})),
        (((SINGLE,), {"n": 4, "m": 4}), ((SINGLE,), {"m": 4, "n": 4})),
    ],
)
def test_calls_that_need_different_plans_have_different_shapes(one, two):
    assert shape_of(*one) != shape_of(*two)


def test_calls_that_differ_in_values_only_share_a_shape():
    assert shape_of((SINGLE, 4), {"m": 1}) == shape_of((HALF, 5), {"m": 2})


def filled():
    cache = Cache()
    cache["one"] = "config"
    cache["two"] = "config"
    cache.plans["shape"] = plan((SINGLE,))
    return cache


@pytest.mark.parametrize(
    "change",
    [
        lambda cache: cache.clear(),
        lambda cache: cache.pop("one"),
        lambda cache: cache.pop("absent", None),
        lambda cache: cache.popitem(),
        lambda cache: cache.__delitem__("one"),
        lambda cache: cache.__setitem__("one", "another"),
    ],
    ids=["clear", "pop", "pop absent", "popitem", "del", "set"],
)
def test_plans_are_forgotten_when_the_cache_is_changed(change):
    cache = filled()
    change(cache)
    assert cache.plans == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda cache: cache.update(one="another"),
        lambda cache: cache.__ior__({"one": "another"}),
    ],
    ids=["update", "or"],
)
def test_plans_are_forgotten_when_the_cache_is_updated(change):
    cache = filled()
    change(cache)
    assert cache.plans == {}


def test_plans_stay_when_a_new_key_is_added():
    cache = filled()
    cache["three"] = "config"
    assert set(cache.plans) == {"shape"}


def test_a_cache_reads_as_a_dictionary():
    cache = filled()
    assert isinstance(cache, dict)
    assert dict(cache) == {"one": "config", "two": "config"}
    assert cache.pop("one") == "config"
    assert "one" not in cache
    with pytest.raises(KeyError):
        cache.pop("one")


# How calls come to a kernel, and what of it is the autotuner.


def scaling(*blocks, **options):
    @triton.jit
    def scale(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)

    listed = [triton.Config({"BLOCK": block}, **options) for block in blocks]
    kernel = whet.autotune(configs=listed, key=["n"])(scale)
    kernel.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    return kernel


EVEN = triton.heuristics({"EVEN": lambda named: named["n"] % 16 == 0})


@pytest.fixture
def driver():
    with fake_driver() as fake:
        yield fake


def long_way(self, args, kwargs):
    raise AssertionError("a call that is known was looked up the long way")


@pytest.mark.medium
@pytest.mark.parametrize(
    ("blocks", "wrap", "keywords"),
    [
        ((64, 128), lambda kernel: kernel, {"EVEN": False}),
        ((64, 128), EVEN, {}),
        ((64,), lambda kernel: kernel, {"EVEN": False}),
        ((64,), EVEN, {}),
    ],
    ids=["plain", "heuristics", "single", "single under heuristics"],
)
def test_a_second_call_takes_the_quick_way(driver, monkeypatch, blocks, wrap, keywords):
    kernel, x = wrap(scaling(*blocks)), FakeTensor([1.0] * 4)
    kernel[(1,)](x, 4, **keywords)
    before = len(driver.launches)
    monkeypatch.setattr(Autotuner, "_run_unknown", long_way)
    kernel[(1,)](x, 4, **keywords)
    assert len(driver.launches) == before + 1
    with pytest.raises(AssertionError, match="the long way"):
        kernel[(1,)](FakeTensor([1.0] * 4, "float16"), 4, **keywords)


@pytest.mark.medium
@pytest.mark.parametrize("blocks", [(64, 128), (64,)])
@pytest.mark.parametrize("wrap", [lambda kernel: kernel, EVEN], ids=["plain", "heuristics"])
def test_a_hook_is_called_with_all_arguments_on_the_quick_way(driver, monkeypatch, wrap, blocks):
    seen = []
    kernel, x = wrap(scaling(*blocks, pre_hook=seen.append)), FakeTensor([1.0] * 4)
    keywords = {} if wrap is EVEN else {"EVEN": False}
    kernel[(1,)](x, 4, **keywords)
    first = seen[-1]
    monkeypatch.setattr(Autotuner, "_run_unknown", long_way)
    kernel[(1,)](x, 4, **keywords)
    assert seen[-1] == first
    assert seen[-1] is not first
    named = {name: first[name] for name in ("x", "n", "BLOCK", "EVEN", "grid", "warmup")}
    assert named == {"x": x, "n": 4, "BLOCK": 64, "EVEN": False, "grid": (1,), "warmup": False}


@pytest.mark.medium
def test_other_configs_are_used_as_soon_as_they_are_given(driver):
    inner = scaling(64)
    kernel, x = EVEN(inner), FakeTensor([1.0] * 4)
    kernel[(1,)](x, 4)
    assert inner.best_config.kwargs == {"BLOCK": 64}
    inner.configs = [triton.Config({"BLOCK": 128})]
    kernel[(1,)](x, 4)
    assert inner.best_config.kwargs == {"BLOCK": 128}
