"""The same kernel twice: which configs change rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from whet.explorer.columns import MEASURED, TrialColumns
from whet.explorer.subject import Subject

Ints = npt.NDArray[np.int64]

# More would be neither seen nor sent in a moment; the fastest of either are kept.
MOST_PAIRS = 20_000


def compare_json(a: Subject, b: Subject) -> dict[str, Any]:
    """Of configs that work on both sides. Ranks start at 0, the fastest; `agreement` is the rank
    correlation. `carried_a_to_b` says how much slower than b's best is what is best on a."""
    left, right = a.read(), b.read()
    rows_a, rows_b, shared = _shared(left.columns, right.columns)
    ns_a = left.columns.column("median_ns")[rows_a].astype(float)
    ns_b = right.columns.column("median_ns")[rows_b].astype(float)
    rank_a, rank_b = _ranks(ns_a), _ranks(ns_b)
    agreement = _correlation(rank_a, rank_b)
    kept = np.sort(np.argsort(np.minimum(rank_a, rank_b), kind="stable")[:MOST_PAIRS])
    return {
        "a": a.id,
        "b": b.id,
        "shared": len(rows_a),
        "configs_shared": shared,
        "shared_rows": [[int(x), int(y)] for x, y in zip(rows_a[kept], rows_b[kept], strict=True)],
        "rank_a": rank_a[kept].tolist(),
        "rank_b": rank_b[kept].tolist(),
        "ns_a": ns_a[kept].tolist(),
        "ns_b": ns_b[kept].tolist(),
        "agreement": agreement,
        "carried_a_to_b": _carried(ns_a, ns_b),
        "carried_b_to_a": _carried(ns_b, ns_a),
    }


def _shared(a: TrialColumns, b: TrialColumns) -> tuple[Ints, Ints, int]:
    """The rows of configs that were measured on both sides, and how many were tried on both."""
    tried_a, tried_b = np.flatnonzero(a.standing()), np.flatnonzero(b.standing())
    _, at_a, at_b = np.intersect1d(
        a.column("id")[tried_a], b.column("id")[tried_b], assume_unique=True, return_indices=True
    )
    rows_a, rows_b = tried_a[at_a], tried_b[at_b]
    both = _measured(a)[rows_a] & _measured(b)[rows_b]
    order = np.argsort(rows_a[both], kind="stable")
    return rows_a[both][order], rows_b[both][order], len(rows_a)


def _measured(columns: TrialColumns) -> npt.NDArray[np.bool_]:
    works = np.isin(columns.column("status"), MEASURED)
    return np.asarray(works & (columns.column("median_ns") > 0))


def _ranks(ns: npt.NDArray[np.float64]) -> Ints:
    ranks = np.empty(len(ns), dtype=np.int64)
    ranks[np.argsort(ns, kind="stable")] = np.arange(len(ns))
    return ranks


def _correlation(one: Ints, two: Ints) -> float | None:
    if len(one) < 3:
        return None
    return float(np.corrcoef(one, two)[0, 1])


def _carried(source: npt.NDArray[np.float64], target: npt.NDArray[np.float64]) -> float | None:
    """`1.08`: what is best at the source takes 1.08 times as long as the target's best."""
    if not len(source):
        return None
    return float(target[int(np.argmin(source))] / target.min())
