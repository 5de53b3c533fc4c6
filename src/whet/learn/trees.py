"""Tree ensembles from scikit-learn, imported when first grown."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from whet.core.errors import UsageError

Floats = npt.NDArray[np.float64]


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
