"""Comparing timings of two occasions, and the picks of two stores."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from whet.core.status import Status
from whet.core.timing import Summary, Timing
from whet.core.workload import Workload
from whet.engine.review.difference import (
    Difference,
    compare_stores,
    ratio_between,
    why_not_comparable,
)
from whet.store import MemoryStore, Store
from whet.testing.samples import a_timing, a_trial, a_workload

DEVICE = a_workload().device


def noisy(median_ns: float, samples: int, seed: int, noise: float = 0.02) -> Timing:
    draw = random.Random(seed)
    times = tuple(median_ns * draw.lognormvariate(0, noise) for _ in range(samples))
    return Timing(times, timer="cpu")


def store_with(*trials: tuple[Workload, dict[str, Any], float]) -> Store:
    store = MemoryStore()
    for workload, config, median_ns in trials:
        store.put_workload(workload)
        store.append([a_trial(workload, config, median_ns)])
    return store


def only(found: list[Difference]) -> Difference:
    (one,) = found
    return one


@pytest.mark.parametrize(("one", "two"), [(3, 20), (6, 6), (20, 20), (2, 2)])
def test_the_interval_of_a_ratio_holds_the_truth_as_often_as_it_says(one: int, two: int) -> None:
    inside = 0
    for seed in range(400):
        ratio = ratio_between(noisy(1100.0, one, seed), noisy(1000.0, two, 1000 + seed))
        inside += ratio.low <= 1.1 <= ratio.high
    # Two samples know little of their own noise; from six on nothing is assumed about it.
    assert inside / 400 > (0.93 if min(one, two) >= 6 else 0.75)


def test_more_samples_make_a_ratio_surer() -> None:
    few, many = (ratio_between(noisy(1e3, n, 1), noisy(1e3, n, 2)) for n in (7, 60))

    assert many.high / many.low < few.high / few.low


def test_a_users_own_benchmark_brings_its_own_interval() -> None:
    def foreign(median: float) -> Timing:
        return Timing((), "own", foreign=Summary(median, 0.9 * median, 1.1 * median, "do_bench"))

    ratio = ratio_between(foreign(2000.0), foreign(1000.0))

    assert ratio.mid == pytest.approx(2.0)
    assert ratio.low < 1.8
    assert ratio.high > 2.2


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (None, "never timed"),
        (a_timing(samples=()), "never timed"),
        (
            a_timing(timer="cuda", l2="cold"),
            "different ways, cpu with L2 none and cuda with L2 cold",
        ),
        (a_timing(quality="host_bound"), "one launch at a time"),
        (a_timing(foreign=Summary(1.0, 1.0, 1.0, "x")), "user's own benchmark"),
    ],
)
def test_only_like_is_compared_with_like(other: Timing | None, why: str) -> None:
    assert why in why_not_comparable(a_timing(), other)


def test_a_disturbed_timing_is_still_one_of_the_same_kind() -> None:
    assert why_not_comparable(a_timing(), a_timing(quality="contaminated")) == ""


def test_a_pick_is_the_same_or_another() -> None:
    one, two = a_workload(), a_workload(kernel="softmax")
    a = store_with((one, {"BM": 1}, 1000.0), (two, {"BM": 1}, 1000.0))
    b = store_with((one, {"BM": 1}, 1000.0), (two, {"BM": 2}, 500.0))

    other, same = compare_stores(a, b)

    assert (other.kind, other.faster) == ("other", "b")
    assert other.ratio is not None
    assert other.ratio.mid == pytest.approx(0.5)
    assert (same.kind, same.faster) == ("same", None)


def test_what_only_one_store_knows_is_said() -> None:
    a, b = store_with((a_workload(key={"M": 1}), {}, 1.0)), store_with((a_workload(), {}, 1.0))

    assert [one.kind for one in compare_stores(a, b)] == ["only_a", "only_b"]


def test_what_two_occasions_differ_by_anyway_tells_nothing_apart() -> None:
    def timed(config: dict[str, Any], median_ns: float) -> Store:
        store = store_with((a_workload(), config, 1.0))
        exact = Timing((median_ns,) * 40, timer="cpu")
        store.append([a_trial(a_workload(), config, timing=exact)])
        return store

    a = timed({"BM": 1}, 1000.0)

    assert only(compare_stores(a, timed({"BM": 2}, 1015.0))).faster is None
    assert only(compare_stores(a, timed({"BM": 2}, 1030.0))).faster == "a"


def test_another_toolchain_is_compared_and_named() -> None:
    newer = a_workload(toolchain={"cc": "gcc 13"})
    found = compare_stores(
        store_with((a_workload(), {"BM": 1}, 1.0)), store_with((newer, {"BM": 1}, 1.0))
    )

    assert (only(found).kind, only(found).differs) == ("same", ("toolchain",))


def test_the_same_device_is_paired_before_another() -> None:
    elsewhere = a_workload(device=replace(DEVICE, name="Other CPU"))
    newer = a_workload(toolchain={"cc": "gcc 13"})
    a = store_with((a_workload(), {"BM": 1}, 1.0))
    b = store_with((elsewhere, {"BM": 2}, 1.0), (newer, {"BM": 1}, 1.0))

    left, paired = compare_stores(a, b)

    assert (left.kind, left.b and left.b.workload) == ("only_b", elsewhere)
    assert paired.differs == ("toolchain",)


def test_the_very_same_workload_is_paired_before_all_others() -> None:
    elsewhere = a_workload(device=replace(DEVICE, name="Other CPU"))
    a = store_with((elsewhere, {"BM": 1}, 1.0), (a_workload(), {"BM": 1}, 1.0))
    b = store_with((a_workload(), {"BM": 1}, 1.0))

    left, same = compare_stores(a, b)

    assert (left.kind, left.a and left.a.workload) == ("only_a", elsewhere)
    assert same.differs == ()


def test_where_nothing_works_any_more_the_pick_is_another() -> None:
    a, b = store_with((a_workload(), {"BM": 1}, 1.0)), MemoryStore()
    b.put_workload(a_workload())
    b.append([a_trial(a_workload(), {"BM": 1}, status=Status.RUN_ERROR)])

    found = only(compare_stores(a, b))

    assert (found.kind, found.ratio, found.faster) == ("other", None, None)


def test_a_kernel_leaves_the_others_out() -> None:
    store = store_with((a_workload(), {}, 1.0), (a_workload(kernel="softmax"), {}, 1.0))

    assert len(compare_stores(store, store, "softmax")) == 1
