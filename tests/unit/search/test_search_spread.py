"""A few configs that stand for a whole list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from whet.core.space import Space
from whet.search.spread import spread


def test_the_authors_first_comes_first_and_the_others_are_far_apart() -> None:
    space = Space({"tile": [16, 32, 64, 128, 256], "warps": [1, 2, 4, 8]})
    chosen = [(config["tile"], config["warps"]) for config in spread(space, 4)]
    assert chosen[0] == (16, 1)
    assert set(chosen[1:]) == {(256, 8), (256, 1), (16, 8)}


@given(st.integers(1, 40))
def test_none_comes_twice_and_all_are_of_the_space(n: int) -> None:
    space = Space({"a": [1, 2, 3], "b": ["x", "y"], "c": [True, False]})
    chosen = spread(space, n)
    assert len(chosen) == len(set(chosen)) == min(n, 12)
    assert all(config in space for config in chosen)
