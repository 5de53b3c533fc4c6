"""The correctness gate: what is right, and what it says when something is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whet.measure.bench.protocol import compare

NAN, INF = float("nan"), float("inf")


def test_within_tolerance_is_right() -> None:
    expected = np.linspace(-5, 5, 1000)
    assert compare(expected * (1 + 0.9e-5), expected, rtol=1e-5, atol=0).ok
    assert not compare(expected * (1 + 1.2e-5), expected, rtol=1e-5, atol=0).ok
    assert compare(expected + 0.9e-3, expected, rtol=0, atol=1e-3).ok


def test_the_message_names_the_output_the_count_and_the_worst_element() -> None:
    expected = np.full((64, 64), 2.5)
    actual = expected.copy()
    actual[10, :11] += 0.1
    actual[3, 7] = 1.5
    verdict = compare({"c": actual}, {"c": expected}, rtol=1e-5, atol=1e-6)
    assert not verdict.ok
    assert "output 'c': 12 of 4096" in verdict.message
    assert "[3, 7]: got 1.5, expected 2.5" in verdict.message
    assert "rtol 1e-05, atol 1e-06" in verdict.message


def test_a_wrong_scalar_is_reported_without_an_index() -> None:
    verdict = compare(1.5, 2.5, rtol=1e-5, atol=1e-6)
    assert "got 1.5, expected 2.5" in verdict.message
    assert "[" not in verdict.message


def test_the_first_wrong_one_of_several_outputs_is_named() -> None:
    verdict = compare((1.0, np.ones(3)), (1.0, np.zeros(3)))
    assert verdict.message.startswith("output 1: 3 of 3 elements differ, worst at [0]: ")
    verdict = compare({"a": [1.0, 2.0]}, {"a": [1.0, 3.0]})
    assert verdict.message.startswith("output 'a'.1: got 2.0, expected 3.0")


@pytest.mark.parametrize(
    ("actual", "expected", "right"),
    [
        ([NAN, 1.0], [NAN, 1.0], True),
        ([NAN, 1.0], [1.0, 1.0], False),
        ([1.0, 1.0], [NAN, 1.0], False),
        ([INF, -INF], [INF, -INF], True),
        ([INF, -INF], [INF, INF], False),
        ([1e30, 1.0], [INF, 1.0], False),
        ([INF, 1.0], [1e30, 1.0], False),
        ([NAN, 1.0], [INF, 1.0], False),
    ],
)
def test_nan_and_infinity_are_right_only_where_they_are_expected(
    actual: list[float], expected: list[float], right: bool
) -> None:
    assert compare(np.array(actual), np.array(expected)).ok is right
    assert compare(np.float32(actual), np.float32(expected)).ok is right


def test_a_nan_is_worse_than_any_number() -> None:
    verdict = compare(np.array([9.0, NAN, 2.0]), np.array([1.0, 1.0, 2.0]))
    assert "2 of 3" in verdict.message
    assert "[1]: got nan, expected 1.0" in verdict.message


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.int64, np.bool_])
def test_integers_and_booleans_must_be_the_same(dtype: type) -> None:
    expected = np.array([0, 1, 1], dtype=dtype)
    actual = expected.copy()
    assert compare(actual, expected, rtol=1.0, atol=10.0).ok
    actual[2] = 0
    verdict = compare(actual, expected, rtol=1.0, atol=10.0)
    assert "1 of 3" in verdict.message
    assert "[2]" in verdict.message
    assert verdict.message.endswith("(exact)")


def test_large_integers_are_not_compared_as_floats() -> None:
    assert not compare(np.array([2**62 + 1]), np.array([2**62])).ok


@pytest.mark.parametrize(
    ("actual", "expected", "says"),
    [
        (np.ones(3), np.ones(4), "shape (3,), expected (4,)"),
        (np.ones((2, 2)), np.ones(4), "shape (2, 2), expected (4,)"),
        (np.ones(2), np.ones(2, int), "floating-point (float64), expected integer (int64)"),
        (np.ones(2, int), np.ones(2), "integer (int64), expected floating-point (float64)"),
        (np.ones(2, bool), np.ones(2, int), "boolean (bool), expected integer (int64)"),
        (True, 1.0, "boolean (bool), expected floating-point (float64)"),
        ((1.0,), (1.0, 2.0), "got 1 outputs, expected 2 outputs"),
        (1.0, (1.0, 2.0), "got one float, expected 2 outputs"),
        ({"a": 1}, {"b": 1}, "got outputs 'a', expected outputs 'b'"),
        (None, 1.0, "object"),
        (1.0, None, "got 1.0, expected None"),
        ("a", "b", "got 'a', expected 'b'"),
    ],
)
def test_what_is_not_even_alike_is_said_so(actual: Any, expected: Any, says: str) -> None:
    verdict = compare(actual, expected)
    assert not verdict.ok
    assert says in verdict.message


def test_width_and_signedness_do_not_matter() -> None:
    assert compare(np.ones(2, np.float32), np.ones(2)).ok
    assert compare(np.ones(2, np.int32), np.ones(2, np.uint64)).ok
    assert compare(3, 3.0).ok


def test_half_precision_does_not_overflow_in_the_comparison() -> None:
    big = np.full(4, 60000, np.float16)
    assert not compare(-big, big).ok
    assert compare(big, big).ok


def test_complex_numbers_have_a_tolerance_too() -> None:
    expected = np.array([1 + 2j])
    assert compare(expected * (1 + 1e-7), expected).ok
    assert not compare(expected + 1j, expected).ok


def test_empty_arrays_are_equal() -> None:
    assert compare(np.ones((0, 3)), np.ones((0, 3))).ok


def test_lists_and_tuples_are_the_same_to_it() -> None:
    assert compare([1, 2.0], (1, 2.0)).ok
