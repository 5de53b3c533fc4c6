"""Which parameter matters: the share of the spread in log time that its value alone explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from whet.explorer.columns import TrialColumns

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

RESAMPLES = 200
# Enough to tell shares apart by a hundredth, few enough to be drawn anew many times.
MOST_ROWS = 20_000
FEWEST_ROWS = 8
MOST_VALUES = 64


@dataclass(frozen=True, eq=False)
class _Seen:
    """Which rows count at all, which of them work, and those of these that are looked at."""

    standing: npt.NDArray[np.bool_]
    works: npt.NDArray[np.bool_]
    rows: npt.NDArray[np.int64]


def importance(columns: TrialColumns, seed: int = 0) -> list[dict[str, Any]]:
    """The most important first. `share` is of the variance of log time between the values, less
    what chance alone would give; `low` and `high` enclose it with 95 %. `total` is what is left
    to it where all others are fixed, None where no two configs differ in it alone. Parameters may
    act together, so that shares need not add up to one; what one explains with others is never less
    than what it explains alone, however the two are estimated."""
    medians, standing = columns.column("median_ns"), columns.standing()
    works = columns.measured() & standing
    rows = np.flatnonzero(works)
    rng = np.random.default_rng(seed)
    if len(rows) > MOST_ROWS:
        rows = np.sort(rows[rng.integers(len(rows), size=MOST_ROWS)])
    seen = _Seen(standing, works, rows)
    varied = {
        name: columns.column(f"p:{name}").astype(np.int64)
        for name, codes in columns.parameters.items()
        if len(codes.values) > 1
    }
    if len(rows) < FEWEST_ROWS:
        return []
    logs = np.log(medians[rows].astype(np.float64))
    drawn = {name: codes[rows] for name, codes in varied.items()}
    found = []
    for name, codes in varied.items():
        share, low, high = _share(drawn[name], logs, rng)
        found.append(
            {
                "parameter": name,
                "share": share,
                "low": low,
                "high": high,
                "total": _total(name, drawn, logs, share or 0.0),
                "values": _by_value(columns.parameters[name].shown(), codes, medians, seen),
            }
        )
    return sorted(found, key=lambda one: -(one["total"] or one["share"] or 0.0))


def _share(codes: Codes, logs: Floats, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    if len(logs) < FEWEST_ROWS or logs.std() == 0:
        return None, None, None
    resamples = RESAMPLES if len(logs) <= 2_000 else RESAMPLES // 4
    drawn = [
        _explained(codes[rows], logs[rows])
        for rows in (rng.integers(len(logs), size=len(logs)) for _ in range(resamples))
    ]
    low, high = np.quantile(drawn, (0.025, 0.975))
    share = _explained(codes, logs)
    return share, min(share, float(low)), max(share, float(high))


def _explained(codes: Codes, logs: Floats) -> float:
    """Omega squared: as eta squared, without the share that random groups would explain."""
    counts = np.bincount(codes)
    used = counts > 0
    groups, rows = int(used.sum()), len(logs)
    total = float(((logs - logs.mean()) ** 2).sum())
    if groups < 2 or rows <= groups or total <= 0:
        return 0.0
    means = np.bincount(codes, weights=logs)[used] / counts[used]
    between = float((counts[used] * (means - logs.mean()) ** 2).sum())
    within = (total - between) / (rows - groups)
    return min(1.0, max(0.0, (between - (groups - 1) * within) / (total + within)))


def _total(name: str, varied: dict[str, Codes], logs: Floats, alone: float) -> float | None:
    """The mean variance among configs that differ in this parameter alone, of all variance."""
    spread = float(logs.var())
    others = [codes for other, codes in varied.items() if other != name]
    if spread <= 0 or not others:
        return None
    _, group = np.unique(np.stack(others), axis=1, return_inverse=True)
    group = group.reshape(-1)
    counts = np.bincount(group)
    several = counts > 1
    if several.sum() < FEWEST_ROWS or counts[several].sum() < len(logs) / 2:
        return None
    means = np.bincount(group, weights=logs) / counts
    squares = np.bincount(group, weights=(logs - means[group]) ** 2)
    variances = squares[several] / (counts[several] - 1)
    total = float(np.average(variances, weights=counts[several]) / spread)
    return min(1.0, max(alone, total))


def _by_value(
    values: Sequence[Any], codes: Codes, medians: Floats, seen: _Seen
) -> list[dict[str, Any]]:
    """How configs with each of its values fared; nothing for a parameter of very many."""
    if len(values) > MOST_VALUES:
        return []
    many = len(values)
    tried = np.bincount(codes[seen.standing], minlength=many)
    worked = np.bincount(codes[seen.works], minlength=many)
    best = np.full(many, np.inf)
    np.minimum.at(best, codes[seen.works], medians[seen.works].astype(np.float64))
    return [
        {
            "value": value,
            "tried": int(tried[code]),
            "failed": int(tried[code] - worked[code]),
            "best_ns": float(best[code]) if worked[code] else None,
            "median_ns": _median(medians[seen.rows][codes[seen.rows] == code]),
        }
        for code, value in enumerate(values)
    ]


def _median(times: Floats) -> float | None:
    return float(np.median(times)) if len(times) else None
