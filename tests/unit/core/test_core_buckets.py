"""Buckets: many values as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.core.buckets import Buckets
from whet.core.errors import UsageError


def bucket(spec: Any) -> Buckets:
    return Buckets.of({"M": spec}, ["M", "N"])


@pytest.mark.parametrize(
    ("value", "bound"), [(1, 1), (2, 2), (3, 4), (37, 64), (64, 64), (65, 128)]
)
def test_pow2_is_the_next_power_of_two(value: int, bound: int) -> None:
    assert bucket("pow2").value("M", value) == bound


@pytest.mark.parametrize(
    ("value", "bound"), [(1, 16), (16, 16), (17, 100), (100, 100), (101, 200), (201, 400)]
)
def test_a_list_is_of_upper_bounds_and_goes_on_in_doublings(value: int, bound: int) -> None:
    assert bucket([16, 100]).value("M", value) == bound


def test_a_function_names_the_bucket() -> None:
    assert bucket(lambda m: "small" if m < 10 else "large").value("M", 3) == "small"


@pytest.mark.parametrize("value", [0, -3, None, "auto", True, float("inf")])
def test_what_is_no_size_stands_for_itself(value: Any) -> None:
    assert bucket("pow2").value("M", value) is value


def test_other_names_are_left_alone() -> None:
    assert bucket("pow2").value("N", 37) == 37


def test_sizes_of_numpy_are_sizes() -> None:
    assert bucket("pow2").value("M", np.int64(37)) == 64


@pytest.mark.medium
@given(st.integers(1, 10**9), st.sampled_from(["pow2", (16, 256), (3,)]))
def test_a_value_lies_within_its_bounds_and_these_bounds_are_the_buckets_of_others(
    value: int, spec: Any
) -> None:
    buckets = bucket(spec)
    bounds = buckets.bounds("M", value)
    assert bounds is not None
    low, high = bounds
    assert low < value <= high
    assert buckets.bounds("M", high) == bounds
    assert not low or buckets.value("M", low) == low


def test_a_thousand_sizes_are_a_dozen_buckets() -> None:
    assert len({bucket("pow2").value("M", m) for m in range(1, 1001)}) == 11


def test_a_function_that_fails_is_named_with_the_value() -> None:
    with pytest.raises(UsageError, match="bucket function of 'M' failed on 0: ZeroDivisionError"):
        bucket(lambda m: 1 // m).value("M", 0)


def test_a_function_must_return_what_a_key_can_hold() -> None:
    with pytest.raises(UsageError, match="return a number or a string"):
        bucket(lambda m: object()).value("M", 3)
