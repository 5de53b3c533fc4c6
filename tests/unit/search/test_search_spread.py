"""A few configs that stand for a whole list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.core.space import Space
from whet.search.unguided import spread


def test_the_authors_first_comes_first_and_the_others_are_far_apart() -> None:
    space = Space({"tile": [16, 32, 64, 128, 256], "warps": [1, 2, 4, 8]})
    chosen = [(config["tile"], config["warps"]) for config in spread(space, 4)]
    assert chosen[0] == (16, 1)
    assert set(chosen[1:]) == {(256, 8), (256, 1), (16, 8)}


@pytest.mark.medium
@given(st.integers(1, 40))
def test_none_comes_twice_and_all_are_of_the_space(n: int) -> None:
    space = Space({"a": [1, 2, 3], "b": ["x", "y"], "c": [True, False]})
    chosen = spread(space, n)
    assert len(chosen) == len(set(chosen)) == min(n, 12)
    assert all(config in space for config in chosen)


def chosen(n: int, *points: str) -> list[str]:
    names = "abcd"[: len(points[0])]
    space = Space([dict(zip(names, map(int, point), strict=True)) for point in points])
    return ["".join(str(config[name]) for name in names) for config in spread(space, n)]


def test_far_is_by_the_straight_distance() -> None:
    """Two thirds of the way in three parameters, 3 × (2/3)², is farther than all of it in one."""
    assert chosen(2, "000", "300", "222", "030", "003") == ["000", "222"]
    assert chosen(3, "0000", "3333", "0333", "1113") == ["0000", "3333", "1113"]
