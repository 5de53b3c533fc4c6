"""Tree ensembles from scikit-learn, imported when first grown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from whet.core.errors import UsageError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int32]

MOST_TREES = 256
MOST_NODES = 1 << 20
_LEAF = -1
_DIGITS = 4


def ensembles() -> Any:
    """`sklearn.ensemble`, or what to do where it is missing."""
    try:
        return import_module("sklearn.ensemble")
    except ImportError:
        raise UsageError(
            "this search needs scikit-learn: pip install scikit-learn, or use auto, gp or tpe"
        ) from None


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees grown on random shares of rows and columns. Their disagreement is their doubt."""

    _trees: tuple[Any, ...]

    @classmethod
    def grown(
        cls,
        rows: Floats,
        values: Floats,
        seed: int,
        *,
        trees: int = 60,
        smallest_leaf: int = 1,
    ) -> Trees:
        forest = ensembles().RandomForestRegressor(
            trees,
            max_features=0.8,
            min_samples_leaf=smallest_leaf,
            random_state=seed,
            n_jobs=1,
        )
        forest.fit(rows.astype(np.float32), values)
        return cls(tuple(estimator.tree_ for estimator in forest.estimators_))

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation over the trees."""
        single = np.ascontiguousarray(rows, dtype=np.float32)
        each = np.stack([tree.predict(single)[:, 0] for tree in self._trees])
        return each.mean(axis=0), each.std(axis=0)


@dataclass(frozen=True, eq=False)
class PlainTrees:
    """Regression trees as plain arrays: grown by scikit-learn, asked and kept without it.

    All trees stand in one row of nodes. A node's left child is the next node and its right child
    stands further on, so that no arrays, however they came about, can make a walk go round.
    `features` is -1 at a leaf, where `numbers` is what it says; elsewhere `numbers` is the
    threshold, up to which rows go left. `roots` are in ascending order, the first is 0.
    """

    width: int
    roots: Integers
    features: Integers
    numbers: Floats
    rights: Integers

    @classmethod
    def grown(
        cls,
        rows: Floats,
        values: Floats,
        weights: Floats,
        seed: int,
        *,
        trees: int,
        leaves: int,
        depth: int,
    ) -> PlainTrees:
        forest = ensembles().ExtraTreesRegressor(
            trees,
            max_features=0.6,
            max_leaf_nodes=leaves,
            max_depth=depth,
            random_state=seed,
            n_jobs=1,
        )
        forest.fit(rows.astype(np.float32), values, sample_weight=weights)
        return cls._joined(rows.shape[1], [one.tree_ for one in forest.estimators_])

    @classmethod
    def _joined(cls, width: int, trees: list[Any]) -> PlainTrees:
        roots: list[int] = []
        features: list[int] = []
        numbers: list[float] = []
        rights: list[int] = []
        for tree in trees:
            start = len(features)
            roots.append(start)
            order, places = _left_first(tree.children_left, tree.children_right)
            inner = tree.children_left >= 0
            number = np.where(inner, tree.threshold, tree.value[:, 0, 0]).round(_DIGITS)
            features += np.where(inner, tree.feature, _LEAF)[order].tolist()
            numbers += number[order].tolist()
            jumps = np.where(inner, start + places[tree.children_right], 0)
            rights += jumps[order].tolist()
        return cls(
            width,
            np.array(roots, dtype=np.int32),
            np.array(features, dtype=np.int32),
            np.array(numbers),
            np.array(rights, dtype=np.int32),
        )

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation over the trees."""
        flat = np.ascontiguousarray(rows).ravel()
        starts = np.tile(np.arange(len(rows), dtype=np.int64) * self.width, len(self.roots))
        at = np.repeat(self.roots, len(rows))
        walking = np.arange(len(at))
        while len(walking):
            here = at[walking]
            feature = self.features[here]
            inner = feature >= 0
            walking, here, feature = walking[inner], here[inner], feature[inner]
            left = flat[starts[walking] + feature] <= self.numbers[here]
            at[walking] = np.where(left, here + 1, self.rights[here])
        each = self.numbers[at].reshape(len(self.roots), len(rows))
        return each.mean(axis=0), each.std(axis=0)

    def to_json(self) -> dict[str, Any]:
        return {
            "width": self.width,
            "roots": self.roots.tolist(),
            "features": self.features.tolist(),
            "numbers": self.numbers.tolist(),
            "rights": self.rights[self.features >= 0].tolist(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PlainTrees:
        """A ValueError says in what way these are no trees."""
        width = data.get("width")
        if type(width) is not int or not 0 < width <= MOST_NODES:
            raise ValueError("its trees have no width")
        roots = _whole(data.get("roots"), "roots", MOST_TREES)
        features = _whole(data.get("features"), "features", MOST_NODES)
        jumps = _whole(data.get("rights"), "rights", MOST_NODES)
        numbers = _finite(data.get("numbers"), "numbers", MOST_NODES)
        if not len(roots) or roots[0] != 0 or (np.diff(roots) <= 0).any():
            raise ValueError("its trees have no valid roots")
        if len(features) != len(numbers) or roots[-1] >= len(features):
            raise ValueError("its trees do not have one number per node")
        if features.min() < _LEAF or features.max() >= width:
            raise ValueError("its trees use columns that do not exist")
        inner = np.flatnonzero(features >= 0)
        if len(jumps) != len(inner):
            raise ValueError("its trees do not have one branch per inner node")
        ends = np.append(roots[1:], len(features))
        last = ends[np.searchsorted(roots, inner, side="right") - 1]
        if (jumps <= inner + 1).any() or (jumps >= last).any():
            raise ValueError("its trees have branches that point outside or back")
        rights = np.zeros(len(features), dtype=np.int32)
        rights[inner] = jumps
        return cls(width, roots, features, numbers, rights)


def _left_first(left: Integers, right: Integers) -> tuple[Integers, Integers]:
    """The nodes from the root on, each followed by all to its left, and where each then stands."""
    order: list[int] = []
    waiting = [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        if left[node] >= 0:
            waiting += [int(right[node]), int(left[node])]
    places = np.empty(len(order), dtype=np.int32)
    places[order] = np.arange(len(order))
    return np.array(order, dtype=np.int32), places


def _whole(given: Any, name: str, most: int) -> Integers:
    array = _array(given, name, most)
    if array.dtype.kind != "i" or ((array < _LEAF) | (array >= MOST_NODES)).any():
        raise ValueError(f"its {name} are not all whole numbers within bounds")
    return array.astype(np.int32)


def _finite(given: Any, name: str, most: int) -> Floats:
    array = _array(given, name, most)
    if array.dtype.kind not in "if" or not (np.abs(array) < 1e30).all():
        raise ValueError(f"its {name} are not all numbers within bounds")
    return array.astype(np.float64)


def _array(given: Any, name: str, most: int) -> npt.NDArray[Any]:
    """Of whatever kind its items are: looking at each alone would take longer than reading it."""
    if not isinstance(given, list) or len(given) > most:
        raise ValueError(f"its {name} are not a list of at most {most}")
    array = np.array(given if given else [], dtype=None if given else np.int64)
    if array.ndim != 1:
        raise ValueError(f"its {name} are not a flat list")
    return array
