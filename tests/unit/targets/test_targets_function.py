"""Python callables as targets."""

import asyncio
import functools
import os

import numpy as np
import pytest

import whet
from whet.core.errors import UsageError
from whet.core.status import Status
from whet.store import MemoryStore


def test_a_misspelt_parameter_is_named_before_anything_runs():
    def f(block):
        return block

    with pytest.raises(UsageError, match=r"f\(\) takes no parameter 'blok'; did you mean 'block'"):
        whet.function(f, {"blok": [1]})


async def awaited(a):
    return a


def yielding(a):
    yield a


async def yielding_later(a):
    yield a


class Awaited:
    async def __call__(self, a):
        return a


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (awaited, r"awaited\(\) is a coroutine function.*asyncio.run"),
        (yielding, r"yielding\(\) is a generator.*list\("),
        (yielding_later, r"yielding_later\(\) is an async generator"),
        (Awaited(), r"Awaited\(\) is a coroutine function"),
        (functools.partial(functools.partial(Awaited())), "is a coroutine function"),
    ],
)
def test_what_does_no_work_when_called_is_refused(fn, said):
    with pytest.raises(UsageError, match=said):
        whet.function(fn, {"a": [1]})


def test_a_check_that_only_makes_a_coroutine_is_refused():
    with pytest.raises(UsageError, match="check= is a coroutine function"):
        whet.function(lambda a: a, {"a": [1]}, check=awaited)


@pytest.mark.medium
@pytest.mark.parametrize("options", [{}, {"isolate": False}, {"prepare": lambda a: None}])
@pytest.mark.parametrize(
    ("fn", "kind"), [(lambda a: awaited(a), "coroutine"), (lambda a: yielding(a), "generator")]
)
def test_a_function_that_returns_its_work_undone_is_refused_and_nothing_stored(fn, kind, options):
    target, store = whet.function(fn, {"a": [1, 2]}, **options), MemoryStore()
    with pytest.raises(UsageError, match=f"returned a {kind} and left its work undone"):
        whet.tune(target, store=store)
    assert not store.trials(target.workload().id)


@pytest.mark.medium
def test_a_coroutine_that_the_function_runs_is_tuned():
    target = whet.function(lambda a: asyncio.run(awaited(a)), {"a": [1]}, reference=1)
    assert whet.tune(target, store=MemoryStore()).best.status is Status.OK


def test_a_reference_is_a_value():
    with pytest.raises(UsageError, match="reference= is a function; give the value"):
        whet.function(lambda a: a, {"a": [1]}, reference=lambda a: a)


def test_a_parameter_cannot_be_tuned_and_fixed():
    with pytest.raises(UsageError, match="tuned and also given"):
        whet.function(lambda a: a, {"a": [1]}, kwargs={"a": 2})


def test_what_cannot_be_called_is_refused():
    with pytest.raises(UsageError, match="needs a callable, not int"):
        whet.function(3, {"a": [1]})


def test_a_key_without_values_is_refused_with_what_to_write():
    with pytest.raises(UsageError, match=r"key=\['n'\] is of type list; .*key=\{'n': 1024\}"):
        whet.function(lambda a: a, {"a": [1]}, key=["n"])


@pytest.mark.medium
@pytest.mark.parametrize("reference", [None, 1])
def test_only_what_compares_results_counts_as_checking(reference):
    target = whet.function(lambda a: 1, {"a": [1, 2]}, reference=reference)
    result = whet.tune(target, store=MemoryStore())
    assert (result.run.cost.wall["check"] > 0) == (reference is not None)
    assert all(("check" in t.cost.work) == (reference is not None) for t in result.trials)
    assert all(trial.cost.work["warmup"] > 0 for trial in result.trials)


@pytest.mark.medium
def test_arguments_are_passed_on():
    def f(x, scale, *, power):
        return (x * scale) ** power

    x = np.arange(4.0)
    target = whet.function(
        f, {"power": [2]}, args=[x], kwargs={"scale": 3.0}, reference=(3 * x) ** 2
    )
    assert whet.tune(target, store=MemoryStore()).best.status is Status.OK
    assert dict(target.key) == {"0": "float64[4]", "scale": 3.0}


@pytest.mark.medium
def test_a_check_may_say_what_is_wrong():
    def check(result, config):
        return f"{result} is odd" if result % 2 else True

    target = whet.function(lambda a: a, {"a": [1, 2]}, check=check)
    result = whet.tune(target, store=MemoryStore())
    (wrong,) = [trial for trial in result.trials if trial.status is Status.WRONG_RESULT]
    assert wrong.error == "1 is odd"
    assert result.config == whet.Config(a=2)


@pytest.mark.medium
def test_a_check_that_raises_over_the_first_config_is_named_and_no_config_blamed():
    def check(result):
        return True

    target = whet.function(lambda a: a, {"a": [1, 2]}, name="f", check=check)
    store = MemoryStore()
    with pytest.raises(UsageError, match=r"check= of f raised TypeError: .*check\(\) takes 1"):
        whet.tune(target, store=store)
    assert not store.trials(target.workload().id)


@pytest.mark.medium
def test_a_check_may_assert():
    def check(result, config):
        assert result % 2 == 0, f"{result} is odd"

    result = whet.tune(whet.function(lambda a: a, {"a": [1, 2]}, check=check), store=MemoryStore())
    (wrong,) = [trial for trial in result.trials if trial.status is Status.WRONG_RESULT]
    assert "1 is odd" in wrong.error


@pytest.mark.medium
def test_it_runs_in_a_child_unless_told_otherwise():
    seen = []

    def f(a):
        seen.append(os.getpid())

    whet.tune(whet.function(f, {"a": [1, 2]}), store=MemoryStore())
    assert seen == []
    whet.tune(whet.function(f, {"a": [1, 2]}, isolate=False), store=MemoryStore())
    assert set(seen) == {os.getpid()}


def test_constraints_may_be_given_beside_a_dict():
    target = whet.function(lambda a: a, {"a": [1, 2, 3]}, constraints=["a != 2"])
    assert [config["a"] for config in target.space] == [1, 3]
    with pytest.raises(UsageError, match="give the constraints either to the Space"):
        whet.function(lambda a: a, whet.Space({"a": [1]}), constraints=["a > 0"])
