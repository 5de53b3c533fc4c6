"""How a call whose config is known finds it."""

import pytest

pytest.importorskip("triton")

from whet.targets.triton.dispatch import Cache, DispatchPlan, shape_of
from whet.testing.fake_triton import FakeTensor

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
