"""Trees as plain arrays say what scikit-learn's say; arrays that are no trees are refused."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

from whet.learn.trees import MOST_NODES, MOST_TREES, PlainTrees, Trees

RNG = np.random.default_rng(3)
ROWS = RNG.random((80, 4)).astype(np.float32).astype(np.float64)
VALUES = np.sin(5 * ROWS[:, 0]) + ROWS[:, 1] ** 2
WEIGHTS = RNG.random(80)
OTHERS = RNG.random((30, 4)).astype(np.float32).astype(np.float64)


def test_a_plain_tree_says_what_the_tree_it_was_made_from_says() -> None:
    reference = ExtraTreesRegressor(
        5, max_features=0.6, max_leaf_nodes=12, max_depth=4, random_state=9
    )
    reference.fit(ROWS, VALUES, sample_weight=WEIGHTS)
    each = np.stack([tree.predict(OTHERS) for tree in reference.estimators_])
    made = PlainTrees.grown(ROWS, VALUES, WEIGHTS, 9, trees=5, leaves=12, depth=4)
    mean, deviation = made.predict(OTHERS)
    assert mean == pytest.approx(each.mean(axis=0), abs=1e-4)
    assert deviation == pytest.approx(each.std(axis=0), abs=1e-4)


def test_numbers_are_kept_to_four_digits() -> None:
    made = PlainTrees.grown(ROWS, VALUES, WEIGHTS, 9, trees=2, leaves=12, depth=4)
    assert made.numbers.tolist() == [round(number, 4) for number in made.numbers.tolist()]
    assert made.numbers.tolist() != [round(number, 3) for number in made.numbers.tolist()]


def test_a_forest_says_what_scikit_learns_says() -> None:
    reference = RandomForestRegressor(7, max_features=0.8, min_samples_leaf=2, random_state=4)
    reference.fit(ROWS, VALUES)
    each = np.stack([tree.predict(OTHERS) for tree in reference.estimators_])
    mean, deviation = Trees.grown(ROWS, VALUES, 4, trees=7, smallest_leaf=2).predict(OTHERS)
    assert mean == pytest.approx(each.mean(axis=0))
    assert deviation == pytest.approx(each.std(axis=0))


@pytest.mark.medium
def test_by_itself_a_forest_has_sixty_trees_grown_to_the_end() -> None:
    reference = RandomForestRegressor(60, max_features=0.8, random_state=4).fit(ROWS, VALUES)
    expected = pytest.approx(reference.predict(OTHERS))
    assert Trees.grown(ROWS, VALUES, 4).predict(OTHERS)[0] == expected


def two_trees() -> dict[str, Any]:
    """x0 ≤ 0.5 ? 1 : (x1 ≤ 2 ? 2 : 3), and one that always says 5."""
    return {
        "width": 2,
        "roots": [0, 5],
        "features": [0, -1, 1, -1, -1, -1],
        "numbers": [0.5, 1.0, 2.0, 2.0, 3.0, 5.0],
        "rights": [2, 4],
    }


def test_rows_go_left_up_to_the_threshold() -> None:
    rows = np.array([[0.5, 9.0], [0.6, 2.0], [0.6, 2.1]])
    mean, deviation = PlainTrees.from_json(two_trees()).predict(rows)
    assert mean.tolist() == [3.0, 3.5, 4.0]
    assert deviation.tolist() == [2.0, 1.5, 1.0]


def test_what_is_kept_comes_back() -> None:
    assert PlainTrees.from_json(two_trees()).to_json() == two_trees()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("width", 0),
        ("width", -1),
        ("width", 1),
        ("width", True),
        ("width", 2.0),
        ("width", MOST_NODES + 1),
        ("roots", []),
        ("roots", [1, 5]),
        ("roots", [0, 0]),
        ("roots", [0, 6]),
        ("roots", [0, 5, 6]),
        ("roots", [0, MOST_NODES]),
        ("roots", [0, -2]),
        ("roots", [0.0, 5.0]),
        ("roots", [[0], [5]]),
        ("roots", list(range(MOST_TREES + 1))),
        ("roots", "0"),
        ("features", [0, -1, 2, -1, -1, -1]),
        ("features", [0, -2, 1, -1, -1, -1]),
        ("features", [0, -1, 1, -1, -1]),
        ("features", [0, -1, 1, -1, -1, -1, -1]),
        ("features", [0, -1, -1, -1, -1, -1]),
        ("numbers", [0.5, 1.0, 2.0, 2.0, 3.0]),
        ("numbers", [0.5, 1.0, 2.0, 2.0, 3.0, 1e30]),
        ("numbers", [0.5, 1.0, 2.0, 2.0, 3.0, float("nan")]),
        ("numbers", [0.5, 1.0, 2.0, 2.0, 3.0, "5"]),
        ("rights", [2]),
        ("rights", [1, 4]),
        ("rights", [0, 4]),
        ("rights", [2, 3]),
        ("rights", [2, 5]),
        ("rights", [5, 4]),
        ("rights", [2, 4, 4]),
    ],
)
def test_arrays_that_are_no_trees_are_refused(name: str, value: Any) -> None:
    body = copy.deepcopy(two_trees())
    body[name] = value
    with pytest.raises(ValueError, match=r"^its "):
        PlainTrees.from_json(body)


def test_trees_at_the_bounds_are_taken() -> None:
    body = two_trees()
    body["width"] = MOST_NODES
    body["features"][0] = MOST_NODES - 1
    body["numbers"][1] = 9.9e29
    assert PlainTrees.from_json(body).width == 1 << 20
    leaves = {"width": 1, "roots": list(range(256)), "features": [-1] * 256, "rights": []}
    assert len(PlainTrees.from_json({**leaves, "numbers": [0] * 256}).roots) == MOST_TREES == 256
