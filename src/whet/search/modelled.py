"""What the strategies with a model share: a pool of candidates, a start, batches, and polish."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from whet.core.config import Config
from whet.core.lazy import cached_property
from whet.core.space import Space
from whet.core.trial import Trial
from whet.learn.features import Codebook, Codes, Features, Points
from whet.learn.gaussian import matern, one_thread
from whet.learn.prior import Prior, Rules

Rows = npt.NDArray[np.intp]

# A space of at most so many configs is looked at as a whole.
LISTED = 20_000
# Of a larger one so many are drawn.
DRAWN = 8_000
# No pool grows beyond this, whatever is added to it.
MOST = 60_000


class Candidates:
    """Configs by row number. A row is free until it is asked for or told of."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space = space
        self.whole = space.is_small(LISTED)
        self.book = Codebook(space)
        drawn = list(space) if self.whole else space.sample(rng, DRAWN)
        self.codes: Codes = self.book.codes(drawn)
        self._configs: list[Config] = drawn
        self._rows = {row.tobytes(): at for at, row in enumerate(self.codes)}
        self.free = np.ones(len(drawn), dtype=bool)

    def __len__(self) -> int:
        return len(self._configs)

    def config(self, row: int) -> Config:
        return self._configs[row]

    def configs(self) -> Sequence[Config]:
        return self._configs

    def take(self, row: int) -> None:
        self.free[row] = False

    def row(self, config: Config) -> int | None:
        """Where a config stands; None for one that is not of this space."""
        codes = self.book.code(config)
        return None if codes is None else self.admit(codes)

    def admit(self, codes: Sequence[int]) -> int | None:
        """The row of these codes, which a valid config outside the pool now gets; else None."""
        key = np.array(codes, dtype=np.int32)
        known = self._rows.get(key.tobytes())
        if known is not None or self.whole:
            return known
        config = self.book.config(key.tolist())
        if len(self) >= MOST or config not in self._space:
            return None
        self._append([config], key[None, :])
        return len(self) - 1

    def neighbours(self, row: int) -> Rows:
        """The free ones that differ from it in one parameter, in any way or by one move where
        the space is too large to list."""
        if self.whole:
            differing = (self.codes != self.codes[row]).sum(axis=1)
            found = np.flatnonzero((differing == 1) & self.free)
        else:
            around = self._space.neighbours(self._configs[row])
            rows = [at for config in around if (at := self.row(config)) is not None]
            found = np.array([at for at in rows if self.free[at]], dtype=np.intp)
        return found

    def refill(self, rng: np.random.Generator) -> bool:
        """More of a space that is too large to list; False where nothing new was found."""
        before = len(self)
        if not self.whole and before < MOST:
            for config in self._space.sample(rng, DRAWN // 4):
                self.row(config)
        return len(self) > before

    def _append(self, configs: Iterable[Config], codes: Codes) -> None:
        for config, row in zip(configs, codes, strict=True):
            self._rows[row.tobytes()] = len(self._configs)
            self._configs.append(config)
        self.codes = np.vstack([self.codes, codes])
        self.free = np.append(self.free, np.ones(len(codes), dtype=bool))


Floats = npt.NDArray[np.float64]

# How far an outcome tells about failures around it, in the unit cube.
REACH = 0.4
# The log odds beyond which no parameter's values make a failure more or less likely.
SUREST = 5.0
# What is known beforehand counts as much as so many outcomes.
LASTING = 10


class Outcomes:
    """A later outcome of a row replaces the earlier."""

    def __init__(self) -> None:
        self.logs: dict[int, float] = {}
        self.failed: dict[int, None] = {}

    def record(self, row: int, trial: Trial) -> None:
        ns = trial.median_ns if trial.status.measured else None
        self.logs.pop(row, None)
        self.failed.pop(row, None)
        if ns is not None and ns > 0 and math.isfinite(ns):
            self.logs[row] = math.log(ns)
        else:
            self.failed[row] = None

    def __contains__(self, row: int) -> bool:
        return row in self.logs or row in self.failed

    def __len__(self) -> int:
        return len(self.logs) + len(self.failed)

    @property
    def best(self) -> float:
        return min(self.logs.values(), default=math.inf)

    @property
    def best_row(self) -> int | None:
        return min(self.logs, key=self.logs.__getitem__, default=None)

    def fastest(self, n: int) -> list[int]:
        return sorted(self.logs, key=self.logs.__getitem__)[:n]


class Risk:
    """The chance that a row fails: what the values of its parameters say, and where outcomes are
    close by the share of failures among them.

    Nothing is computed before the first failure. `beforehand` is what is known from elsewhere,
    NaN where nothing is; it gives way as outcomes come in.
    """

    def __init__(self, outcomes: Outcomes, beforehand: Floats | None = None) -> None:
        self._outcomes = outcomes
        self._beforehand = beforehand
        self._felt = np.empty(0, np.float32)
        self._failures = np.empty(0, np.float32)
        self._counted: dict[int, bool] = {}

    def succeeding(self, points: Points, codes: Codes) -> Floats:
        """The chance of success of every row."""
        outcomes = self._outcomes
        if not outcomes.failed and self._beforehand is None:
            return np.ones(len(points))
        self._count(points)
        expected = self._by_values(codes)
        if self._beforehand is not None:
            at = np.flatnonzero(~np.isnan(self._beforehand))
            share = LASTING / (LASTING + len(outcomes))
            expected[at] = share * self._beforehand[at] + (1 - share) * expected[at]
        chance: Floats = 1 - (self._failures + expected) / (self._felt + 1)
        return np.maximum(chance, 1e-3)

    def _by_values(self, codes: Codes) -> Floats:
        """Naive Bayes: each parameter's value speaks for itself."""
        failed, worked = list(self._outcomes.failed), list(self._outcomes.logs)
        odds = np.full(len(codes), np.log((len(failed) + 0.5) / (len(worked) + 0.5)))
        if not failed or not worked:
            return np.asarray(1 / (1 + np.exp(-np.clip(odds, -SUREST, SUREST))))
        for column in codes.T:
            values = int(column.max()) + 1
            bad = np.bincount(column[failed], minlength=values) + 0.5
            good = np.bincount(column[worked], minlength=values) + 0.5
            odds += (np.log(bad / bad.sum()) - np.log(good / good.sum()))[column]
        return np.asarray(1 / (1 + np.exp(-np.clip(odds, -SUREST, SUREST))))

    def _count(self, points: Points) -> None:
        outcomes = self._outcomes
        replaced = any(failed != (row in outcomes.failed) for row, failed in self._counted.items())
        if len(self._felt) != len(points) or replaced:
            self._felt = np.zeros(len(points), np.float32)
            self._failures = np.zeros(len(points), np.float32)
            self._counted = {}
        for row in (*outcomes.logs, *outcomes.failed):
            if row not in self._counted:
                felt = matern(((points - points[row]) ** 2).sum(axis=1) / np.float32(REACH**2))
                failed = row in outcomes.failed
                self._felt += felt
                self._failures += felt * np.float32(failed)
                self._counted[row] = failed


Singles = npt.NDArray[np.float32]

# The starting configs are the farthest from one another among so many random ones.
SCATTERED = 500
# They are of the share that is best by the rules of thumb, where that is enough to choose from.
SENSIBLE, SENSIBLE_LEAST = 1 / 6, 64
# Two configs of one batch keep about this far apart where no model keeps them apart.
APART = 0.3


class Modelled:
    """Asks for `starts` configs far from one another, then for what `_choose` finds best.

    A subclass gives `_choose`, and may follow what is told in `_learned`.
    With `transfer` most of the starts are what the prior rates best.
    """

    guided = True
    starts = 8
    # How many of the starts are the prior's, where there is one.
    favoured = 6

    def __init__(self, space: Space, seed: int = 0, *, transfer: Prior | None = None) -> None:
        self._space = space
        self._rng = np.random.default_rng(seed)
        self._transfer = transfer
        self._outcomes = Outcomes()
        self._pending: dict[int, None] = {}
        self._design: list[int] | None = None
        self._stored_by_rule: Floats = np.empty(0)

    def ask(self, n: int) -> list[Config]:
        with one_thread():
            return self._asked(n)

    def _asked(self, n: int) -> list[Config]:
        asked: list[Config] = []
        while len(asked) < n:
            row = self._next()
            if row is None:
                break
            self._candidates.take(row)
            self._pending[row] = None
            asked.append(self._candidates.config(row))
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        with one_thread():
            self._told(trials)

    def _told(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            row = self._candidates.row(trial.config)
            if row is None:
                continue
            self._candidates.take(row)
            self._pending.pop(row, None)
            self._outcomes.record(row, trial)
            self._learned(row)

    def _choose(self, free: npt.NDArray[np.intp]) -> int:
        """The free row to ask for next, once two configs have been measured."""
        raise NotImplementedError

    def _learned(self, row: int) -> None:
        """The outcome of a row is known, also of one that nobody asked for."""

    @cached_property
    def _candidates(self) -> Candidates:
        return Candidates(self._space, self._rng)

    @cached_property
    def _features(self) -> Features:
        return Features(self._candidates.book, self._candidates.codes)

    @property
    def _points(self) -> Points:
        """The features of every candidate; grows with the pool."""
        return self._grown("points", self._features)

    def _grown(self, name: str, features: Features) -> Points:
        store: dict[str, Points] = self.__dict__.setdefault("_stored_points", {})
        codes = self._candidates.codes
        held = store.get(name)
        if held is None:
            store[name] = held = features.of(codes)
        elif len(held) < len(codes):
            store[name] = held = np.vstack([held, features.of(codes[len(held) :])])
        return held

    @cached_property
    def _rules(self) -> Rules:
        return Rules(self._candidates.book)

    @property
    def _rated_by_rule(self) -> Floats | None:
        """What the rules of thumb say of every candidate; None where they say nothing."""
        if self._rules.silent:
            return None
        if len(self._stored_by_rule) < len(self._candidates):
            self._stored_by_rule = self._rules.of(self._candidates.codes)
        return self._stored_by_rule

    @cached_property
    def _sources(self) -> Floats | None:
        """The expected log time of every candidate, one column a source of prior knowledge; None
        without any. What one source does not know is what the others say together; what mostly
        failed is slow."""
        if self._transfer is None:
            return None
        configs = self._candidates.configs()
        by_source = getattr(self._transfer, "by_source", None)
        scores = np.asarray(self._transfer.scores(configs), dtype=np.float64)
        if not np.isfinite(scores).any():
            return None
        failing = np.asarray(self._transfer.failing(configs), dtype=np.float64) > 0.5
        usual = np.where(np.isfinite(scores), scores, float(np.nanmedian(scores)))
        usual[failing] = float(np.nanmax(scores))
        columns = usual[:, None]
        if by_source is not None:
            known = np.asarray(by_source(configs), dtype=np.float64)
            columns = np.where(np.isfinite(known), known, usual[:, None])
        return columns if np.ptp(columns) > 0 else None

    @cached_property
    def _source_weights(self) -> Floats:
        """How much each source counts beforehand; they add up to 1."""
        assert self._sources is not None
        count = self._sources.shape[1]
        weights = np.asarray(getattr(self._transfer, "weights", ()), dtype=np.float64)
        if len(weights) != count or weights.sum() <= 0:
            weights = np.ones(count)
        return np.asarray(weights / weights.sum())

    @cached_property
    def _ratings(self) -> Floats | None:
        """The weighted mean over the sources; None without any."""
        if self._sources is None:
            return None
        mean: Floats = self._sources @ self._source_weights
        return mean

    @cached_property
    def _risk(self) -> Risk:
        beforehand = None
        if self._transfer is not None:
            beforehand = np.asarray(self._transfer.failing(self._candidates.configs()))
        return Risk(self._outcomes, beforehand)

    def _succeeding(self) -> Floats:
        """The chance of success of every candidate."""
        return self._risk.succeeding(self._points, self._candidates.codes)

    def _next(self) -> int | None:
        free = np.flatnonzero(self._candidates.free)
        if not len(free):
            if not self._candidates.refill(self._rng):
                return None
            free = np.flatnonzero(self._candidates.free)
        if len(free) == 1:
            return int(free[0])
        if self._design is None:
            self._design = self._started(free)
        while self._design:
            row = self._design.pop(0)
            if self._candidates.free[row]:
                return row
        if len(self._outcomes.logs) < 2:
            return self._away(free)
        return self._choose(free)

    def _started(self, free: npt.NDArray[np.intp]) -> list[int]:
        """The starting rows; fewer where outcomes are known already."""
        wanted = self.starts - len(self._outcomes.logs)
        if wanted <= 0:
            return []
        favoured = self._favourites(min(self.favoured, wanted))
        return self._scattered(free, wanted, favoured)

    def _scattered(
        self, free: npt.NDArray[np.intp], n: int, after: Sequence[int] = ()
    ) -> list[int]:
        """`n` rows, each as far as can be from those before it, which start with `after` or with
        one from the middle of the space. What follows from the parameters does not count here."""
        drawn = self._rng.permutation(self._sensible(free))[:SCATTERED]
        plain = self._points[:, : self._features.plain]
        points = plain[drawn]
        middle = int(np.argmin(((points - 0.5) ** 2).sum(axis=1)))
        chosen = list(after) or [int(drawn[middle])]
        nearest = np.full(len(drawn), np.inf)
        for row in chosen:
            nearest = np.minimum(nearest, ((points - plain[row]) ** 2).sum(axis=1))
        while len(chosen) < min(n, len(free)):
            at = int(np.argmax(nearest))
            chosen.append(int(drawn[at]))
            nearest = np.minimum(nearest, ((points - points[at]) ** 2).sum(axis=1))
        return chosen

    def _sensible(self, free: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Those of the free rows that are best by the rules of thumb."""
        rated = self._rated_by_rule
        if rated is None:
            return free
        mixed = self._rng.permutation(free)
        share = max(SENSIBLE_LEAST, int(SENSIBLE * len(free)))
        return mixed[np.argsort(rated[mixed], kind="stable")[:share]]

    def _favourites(self, n: int) -> list[int]:
        """The configs that together serve the sources best: first what is best on average, then
        what is best for those that the first does not suit, and so on."""
        if self._sources is None:
            return []
        failing = 1 - self._succeeding()
        slower = self._sources + failing[:, None]
        slower[~self._candidates.free] = np.inf
        reached = np.full(slower.shape[1], np.inf)
        chosen: list[int] = []
        for _ in range(n):
            together = np.minimum(slower, reached) @ self._source_weights
            # Of equals the one that is best on average.
            together += 0.05 * (slower @ self._source_weights)
            together[chosen] = np.inf
            row = int(np.argmin(together))
            if not np.isfinite(together[row]):
                break
            chosen.append(row)
            reached = np.minimum(reached, slower[row])
        return chosen

    def _away(self, free: npt.NDArray[np.intp]) -> int:
        """While next to nothing works: a random one, away from what failed."""
        drawn = self._rng.permutation(free)[:SCATTERED]
        chance = self._succeeding()[drawn]
        return int(drawn[int(np.argmax(chance))])

    def _closeness(self, row: int) -> Floats:
        """1 at the row, 0 far from it."""
        points = self._points
        near = matern(((points - points[row]) ** 2).sum(axis=1) / np.float32(APART**2))
        return near.astype(np.float64)

    def _most(self, appeal: Floats | Singles, free: npt.NDArray[np.intp]) -> int:
        return int(free[int(np.argmax(appeal[free]))])
