"""A few configs and a rule that chooses among them by the numbers of a key.

The configs are a portfolio. The rule is a table while there are few keys, else a small tree that is
grown for speed lost rather than for wrong answers: to take the second best costs what it costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from whet.core.config import Config
from whet.learn.prior import portfolio_of

Sizes = tuple[int | float, ...]
Style = Literal["auto", "table", "tree"]
Losses = npt.NDArray[np.float64]

# A table of more keys than this is longer to read than a tree is to follow.
TABLE_KEYS = 12
# What a config loses where it was not measured or failed.
_UNKNOWN_LOSS = math.log(100)
# A split that gains less than this share of the time, summed over keys, is not worth a line.
_LEAST_GAIN = 1e-3


@dataclass(frozen=True)
class Known:
    """One key: its numbers, the rest of it as text, and nanoseconds by config."""

    sizes: Sizes
    rest: tuple[str, ...]
    times: Mapping[Config, float]


@dataclass(frozen=True)
class Split:
    """`low` where size number `feature` is at most `at`, else `high`."""

    feature: int
    at: int | float
    low: Node
    high: Node


Node = int | Split


@dataclass(frozen=True)
class SizeRule:
    """For keys with the same `rest`: a table by sizes, or a tree. Either gives a config's index."""

    rest: tuple[str, ...]
    table: tuple[tuple[Sizes, int], ...] = ()
    tree: Node | None = None

    def index(self, sizes: Sizes) -> int:
        if self.tree is None:
            known = dict(self.table)
            nearest = min(known, key=lambda one: (one != sizes, distance(one, sizes)))
            return known[nearest]
        node = self.tree
        while isinstance(node, Split):
            node = node.low if sizes[node.feature] <= node.at else node.high
        return node


@dataclass(frozen=True)
class Decision:
    """`rules[0]` serves whatever no other rule is for. `score` is how fast the picks are against
    the best known, as a geometric mean over the known keys, `worst` the least of them; `limit` is
    the score of the best pick among `configs` for each key. All three are None without times."""

    configs: tuple[Config, ...]
    rules: tuple[SizeRule, ...]
    measured: int
    keys: int
    score: float | None
    worst: float | None
    limit: float | None

    def pick(self, sizes: Sizes, rest: tuple[str, ...] = ()) -> Config:
        rule = next((rule for rule in self.rules if rule.rest == rest), self.rules[0])
        return self.configs[rule.index(sizes)]


def distance(one: Sizes, two: Sizes) -> float:
    """In doublings, summed over the sizes."""
    return sum(
        abs(math.log2(max(a, 1)) - math.log2(max(b, 1))) for a, b in zip(one, two, strict=True)
    )


def decide(
    known: Sequence[Known],
    *,
    max_configs: int,
    max_leaves: int,
    style: Style = "auto",
    timed: bool = True,
) -> Decision:
    """The rest that has most keys comes first, of equals the first. Not `timed` is for choices of
    which nobody knows how good they are: there is no score then."""
    configs = portfolio_of([one.times for one in known], max_configs).configs
    losses = np.array([[_loss(one.times, config) for config in configs] for one in known])
    groups: dict[tuple[str, ...], list[int]] = {}
    for at, one in enumerate(known):
        groups.setdefault(one.rest, []).append(at)
    rules = []
    for rest, rows in sorted(groups.items(), key=lambda item: -len(item[1])):
        sizes = [known[row].sizes for row in rows]
        if style == "table" or (style == "auto" and len(rows) <= TABLE_KEYS):
            picks = losses[rows].argmin(axis=1)
            table = tuple(sorted((size, int(at)) for size, at in zip(sizes, picks, strict=True)))
            rules.append(SizeRule(rest, table=table))
        else:
            rules.append(SizeRule(rest, tree=_grown(sizes, losses[rows], max_leaves)))
    by_rest = {rule.rest: rule for rule in rules}
    lost = [losses[row, by_rest[one.rest].index(one.sizes)] for row, one in enumerate(known)]
    return Decision(
        configs=configs,
        rules=tuple(rules),
        measured=len({config for one in known for config in one.times}),
        keys=len(known),
        score=math.exp(-float(np.mean(lost))) if timed else None,
        worst=math.exp(-max(lost)) if timed else None,
        limit=math.exp(-float(losses.min(axis=1).mean())) if timed else None,
    )


def _loss(times: Mapping[Config, float], config: Config) -> float:
    """0 for the best known, log 2 for what takes twice as long."""
    if config not in times:
        return _UNKNOWN_LOSS
    return min(math.log(times[config] / min(times.values())), _UNKNOWN_LOSS)


@dataclass(eq=False)
class _Leaf:
    """A part of the keys, with the split that would gain most there."""

    rows: npt.NDArray[np.intp]
    config: int
    gain: float = 0.0
    feature: int = 0
    at: int | float = 0
    low: _Leaf | None = None
    high: _Leaf | None = None


def _grown(sizes: Sequence[Sizes], losses: Losses, max_leaves: int) -> Node:
    """Best first: the leaf whose split gains most is split next, of equals the earlier."""
    values = np.array(sizes, dtype=np.float64)
    root = _leaf(np.arange(len(sizes)), sizes, values, losses)
    leaves = [root]
    while len(leaves) < max_leaves:
        best = max(leaves, key=lambda leaf: leaf.gain)
        if best.gain < _LEAST_GAIN:
            break
        under = values[best.rows, best.feature] <= best.at
        best.low = _leaf(best.rows[under], sizes, values, losses)
        best.high = _leaf(best.rows[~under], sizes, values, losses)
        leaves[leaves.index(best)] = best.low
        leaves.append(best.high)
    return _node(root)


def _leaf(
    rows: npt.NDArray[np.intp],
    sizes: Sequence[Sizes],
    values: npt.NDArray[np.float64],
    losses: Losses,
) -> _Leaf:
    total = losses[rows].sum(axis=0)
    leaf = _Leaf(rows, int(total.argmin()))
    for feature in range(values.shape[1]):
        order = rows[np.argsort(values[rows, feature], kind="stable")]
        below = losses[order].cumsum(axis=0)
        split = below[:-1].min(axis=1) + (total - below[:-1]).min(axis=1)
        column = values[order, feature]
        split[column[:-1] == column[1:]] = math.inf
        if not len(split) or not np.isfinite(split.min()):
            continue
        place = int(split.argmin())
        gain = float(total.min() - split[place])
        if gain > leaf.gain + 1e-12:
            leaf.gain, leaf.feature = gain, feature
            leaf.at = _between(sizes[order[place]][feature], sizes[order[place + 1]][feature])
    return leaf


def _between(low: int | float, high: int | float) -> int | float:
    """Halfway in doublings, as a whole number where both are."""
    middle = math.sqrt(low * high) if low > 0 else (low + high) / 2
    if isinstance(low, int) and isinstance(high, int):
        return min(max(math.floor(middle), low), high - 1)
    return middle if low <= middle < high else low


def _node(leaf: _Leaf) -> Node:
    if leaf.low is None or leaf.high is None:
        return leaf.config
    low, high = _node(leaf.low), _node(leaf.high)
    return low if low == high else Split(leaf.feature, leaf.at, low, high)
