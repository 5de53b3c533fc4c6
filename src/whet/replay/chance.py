"""What random search can promise: one of the fastest configs after so many draws."""

from __future__ import annotations

import math

import numpy as np

from whet.replay.lab import Case, Replayed


def chance(share: float, draws: int) -> float:
    """That one of so many random configs is among the fastest `share` of all:
    `chance(0.05, 30) == 0.785…`"""
    return 1 - (1 - share) ** draws


def draws_for(share: float, confidence: float = 0.95) -> int:
    """How many it takes: `draws_for(0.05) == 59`."""
    return math.ceil(math.log(1 - confidence) / math.log(1 - share))


def fastest(case: Case, share: float) -> frozenset[int]:
    """The indices of the fastest `share` of all configs whose outcome is known, one at least; those
    that fail are the slowest and never among them."""
    table, workload = case.table, case.workload
    known = sum(table.status(workload, at) is not None for at in range(len(table.configs)))
    working = np.flatnonzero(~np.isnan(workload.medians))
    order = working[np.argsort(workload.medians[working], kind="stable")]
    return frozenset(int(at) for at in order[: max(1, round(share * known))])


def share_of_repeats(replayed: Replayed, wanted: frozenset[int], evals: int) -> float:
    """That had tried one of `wanted` after so many evaluations."""
    had = [not wanted.isdisjoint(course.evaluations[:evals]) for course in replayed.courses]
    return sum(had) / len(had)
