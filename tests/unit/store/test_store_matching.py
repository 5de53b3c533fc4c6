"""How far two keys are apart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.store.matching import UNLIKE, key_distance

keys = st.dictionaries(
    st.sampled_from("MNKd"),
    st.one_of(
        st.integers(-(10**9), 10**9),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(["f16", "f32", None, True]),
        st.tuples(st.integers(0, 4096), st.integers(0, 4096)),
    ),
)


@pytest.mark.medium
@given(keys, keys)
def test_it_is_the_same_from_both_sides(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert key_distance(one, two) == pytest.approx(key_distance(two, one))


@pytest.mark.medium
@given(keys)
def test_a_key_is_no_distance_from_itself(key: dict[str, Any]) -> None:
    assert key_distance(key, key) == 0


@pytest.mark.parametrize(
    ("one", "two", "distance"),
    [
        ({"M": 1023}, {"M": 2047}, 1),
        ({"M": 1023, "N": 2047}, {"M": 2047, "N": 1023}, 2),
        ({"M": 0}, {"M": 1}, 1),
        ({"M": -1}, {"M": 1}, 2),
        ({"shape": (1, 3)}, {"shape": [3, 7]}, 2),
        ({"shape": (1, 3)}, {"shape": (1, 3, 5)}, UNLIKE),
        ({"dtype": "f16"}, {"dtype": "f32"}, UNLIKE),
        ({"dtype": "f16"}, {}, UNLIKE),
        ({"flag": True}, {"flag": 1}, 0),
        ({"flag": True}, {"flag": False}, UNLIKE),
    ],
)
def test_numbers_count_in_doublings_and_all_else_is_equal_or_not(
    one: dict[str, Any], two: dict[str, Any], distance: float
) -> None:
    assert key_distance(one, two) == pytest.approx(distance)
