"""What a search thinks of configs: against scikit-learn's kernel and closed forms."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import Matern

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Cost, Trial
from whet.search import make_strategy
from whet.search.anneal import Anneal
from whet.search.forest import Forest
from whet.search.gp import Surrogate, TwoViews, eased
from whet.search.model_free import ListedPool, ModelFree, SampledPool, pool_of
from whet.search.modelled import Candidates, Modelled, Outcomes, Risk
from whet.search.quick import Quick

POINTS = np.random.default_rng(5).random((14, 2)).astype(np.float32)


def test_slow_configs_are_all_alike() -> None:
    """A log time of 0.1 above the best counts nearly in full, and none for more than 0.8."""
    slower = np.array([0.0, 0.1, 1.0, 50.0])
    assert eased(slower) == pytest.approx([0.0, 0.8 * -math.expm1(-0.125), 0.5708, 0.8], abs=1e-4)


class TestSurrogate:
    def told(self, surrogate: Surrogate, logs: dict[int, float | None]) -> Surrogate:
        for row, log in logs.items():
            if log is None:
                surrogate.fail(row)
            else:
                surrogate.observe(row, log)
        return surrogate

    def reference(
        self, surrogate: Surrogate, rows: list[int], values: Any, opinions: Any, given: Any
    ) -> Any:
        """The mean, where opinions are weighed by least squares under the process's covariance:
        how far from `given` they may be has a standard deviation of a half over all of them."""
        assert surrogate._posterior is not None
        fitted = surrogate._posterior.hyperparameters
        kernel = Matern(fitted.length_scales, nu=2.5)
        covariance = kernel(POINTS[rows]) + fitted.noise * np.eye(len(rows))
        turn = np.linalg.inv(np.linalg.cholesky(covariance))
        flat = turn @ np.ones(len(rows))
        flat /= np.linalg.norm(flat)
        project = turn - np.outer(flat, flat @ turn)
        known, told = project @ opinions[rows], project @ values
        rest = told - known @ given
        count = len(given)
        noise = np.mean(rest**2) + 1e-6
        stiff = math.sqrt(noise) * math.sqrt(count) / 0.5
        system = np.vstack([known, stiff * np.eye(count)])
        change = np.linalg.lstsq(system, np.append(rest, np.zeros(count)), rcond=None)[0]
        rated = opinions @ np.clip(given + change, 0.0, 1.5)
        left = values - rated[rows]
        mean = left.mean() + kernel(POINTS, POINTS[rows]) @ np.linalg.solve(
            covariance, left - left.mean()
        )
        return rated + mean

    @pytest.mark.parametrize("weights", [None, [0.7, 0.3]])
    def test_opinions_are_weighed_by_how_far_outcomes_bear_them_out(
        self, weights: list[float] | None
    ) -> None:
        rng = np.random.default_rng(2)
        opinions = rng.random((14, 2))
        truth = 0.9 * opinions[:, 0] + 0.2 * opinions[:, 1] + 0.1 * POINTS[:, 0] + 3.0
        rows = [1, 4, 5, 8, 9, 12]
        given = np.array([0.5, 0.5] if weights is None else weights)
        surrogate = Surrogate(None if weights is None else np.array(weights))
        self.told(surrogate, {row: float(truth[row]) for row in rows})
        mean, _ = surrogate.predict(POINTS, {}, opinions)
        best = truth[rows].min()
        values = best + eased(truth[rows] - best)
        expected = self.reference(surrogate, rows, values, opinions, given)
        assert mean == pytest.approx(expected, abs=2e-3)

    def test_a_failure_counts_as_the_slowest_quarter(self) -> None:
        surrogate = self.told(Surrogate(), {0: 1.0, 1: 1.2, 2: 1.4, 3: 1.6, 4: 9.0, 7: None})
        slow = 1.0 + 0.8 * -math.expm1(-0.6 / 0.8)
        assert surrogate._outcomes([0, 7]) == pytest.approx([1.0, slow])

    def test_a_later_outcome_replaces_an_earlier(self) -> None:
        surrogate = self.told(Surrogate(), {0: 1.0, 1: 2.0, 2: None})
        self.told(surrogate, {1: None, 2: 1.0})
        assert surrogate._kept(9) == [0, 2, 1]

    def test_of_too_many_the_best_half_and_the_latest_are_kept(self) -> None:
        logs: dict[int, float | None] = {row: abs(row - 3.1) for row in range(9)}
        surrogate = self.told(Surrogate(), {**logs, 9: None})
        assert surrogate._kept(10) == list(range(10))
        assert surrogate._kept(6) == [3, 4, 2, 7, 8, 9]

    def test_what_is_pending_counts_as_if_it_came_out_at_its_mean(self) -> None:
        surrogate = self.told(Surrogate(), {0: 1.0, 3: 1.3, 6: 1.1})
        before, doubt = surrogate.predict(POINTS, {})
        after, less = surrogate.predict(POINTS, {10: None})
        assert after[10] == pytest.approx(before[10], abs=0.01)
        assert less[10] < 0.3 * doubt[10]


def trial(row: int, ns: float | None) -> Trial:
    if ns is None:
        return Trial("w", Config(a=row), Status.RUN_ERROR)
    return Trial("w", Config(a=row), Status.OK, Timing((ns,), "fake"))


class TestRisk:
    LINE = np.linspace(0, 1, 5, dtype=np.float32)[:, None]
    CODES = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0]], dtype=np.int32)

    def felt(self, row: int) -> Any:
        return Matern(0.4, nu=2.5)(self.LINE, self.LINE[row : row + 1])[:, 0]

    def outcomes(self, **ns: float | None) -> Outcomes:
        outcomes = Outcomes()
        for name, one in ns.items():
            outcomes.record(int(name[1:]), trial(int(name[1:]), one))
        return outcomes

    def by_values(self) -> Any:
        """Naive Bayes with half an outcome more of each: row 0 failed, 3 and 4 worked."""
        odds = np.full(5, math.log(1.5 / 2.5))
        first = np.log([1.5 / 2.5 / (0.5 / 3.5), 0.5 / 2.5 / (1.5 / 3.5), 0.5 / 2.5 / (1.5 / 3.5)])
        second = np.log([1.5 / 2.0 / (1.5 / 3.0), 0.5 / 2.0 / (1.5 / 3.0)])
        odds += first[self.CODES[:, 0]] + second[self.CODES[:, 1]]
        return 1 / (1 + np.exp(-odds))

    def test_without_a_failure_everything_is_thought_to_work(self) -> None:
        assert Risk(Outcomes()).succeeding(self.LINE, self.CODES).tolist() == [1.0] * 5

    def test_it_is_what_values_say_and_the_share_of_failures_around(self) -> None:
        chances = Risk(self.outcomes(r0=None, r3=1.0, r4=2.0)).succeeding(self.LINE, self.CODES)
        felt = self.felt(0) + self.felt(3) + self.felt(4)
        expected = 1 - (self.felt(0) + self.by_values()) / (felt + 1)
        assert chances == pytest.approx(expected, abs=1e-5)

    def test_what_is_known_beforehand_counts_as_ten_outcomes(self) -> None:
        beforehand = np.array([math.nan, 0.9, math.nan, 0.2, 0.0])
        risk = Risk(self.outcomes(r0=None, r3=1.0, r4=2.0), beforehand)
        expected = self.by_values()
        for row in (1, 3, 4):
            expected[row] = 10 / 13 * beforehand[row] + 3 / 13 * expected[row]
        felt = self.felt(0) + self.felt(3) + self.felt(4)
        chances = risk.succeeding(self.LINE, self.CODES)
        assert chances == pytest.approx(1 - (self.felt(0) + expected) / (felt + 1), abs=1e-5)

    def test_where_all_failed_their_number_says_how_likely_the_next_is_to(self) -> None:
        chances = Risk(self.outcomes(r0=None, r4=None)).succeeding(self.LINE, self.CODES)
        felt = self.felt(0) + self.felt(4)
        assert chances == pytest.approx(1 - (felt + 2.5 / 3) / (felt + 1), abs=1e-5)

    def test_no_number_of_failures_makes_it_certain(self) -> None:
        """Nor do they, beyond log odds of five, make it more likely."""
        outcomes = Outcomes()
        for row in range(399):
            outcomes.record(row, trial(row, None))
        points = np.linspace(0, 39900, 400, dtype=np.float32)[:, None]
        codes = np.zeros((400, 1), dtype=np.int32)
        chances = Risk(outcomes).succeeding(points, codes)
        likely = 1 / (1 + math.exp(-5))
        assert chances[-1] == pytest.approx(1 - likely, rel=1e-3)
        assert Risk(outcomes).succeeding(points / 1e6, codes) == pytest.approx([1e-3] * 400)

    def test_an_outcome_that_was_replaced_is_counted_anew(self) -> None:
        beforehand = np.full(5, 0.3)
        outcomes = self.outcomes(r0=None)
        risk = Risk(outcomes, beforehand)
        risk.succeeding(self.LINE, self.CODES)
        outcomes.record(0, trial(0, 1.0))
        afresh = Risk(self.outcomes(r0=1.0), beforehand).succeeding(self.LINE, self.CODES)
        assert risk.succeeding(self.LINE, self.CODES) == pytest.approx(afresh)


class TestOutcomes:
    def test_the_best_are_those_with_the_least_time(self) -> None:
        outcomes = Outcomes()
        assert (outcomes.best, outcomes.best_row, outcomes.fastest(2)) == (math.inf, None, [])
        for row, ns in ((0, 5.0), (1, 3.0), (2, None), (3, 4.0)):
            outcomes.record(row, trial(row, ns))
        assert (outcomes.best, outcomes.best_row) == (math.log(3.0), 1)
        assert outcomes.fastest(2) == [1, 3]
        assert len(outcomes) == 4
        assert [row in outcomes for row in range(5)] == [True, True, True, True, False]

    def test_a_time_of_nothing_is_a_failure(self) -> None:
        outcomes = Outcomes()
        outcomes.record(0, trial(0, 0.0))
        assert list(outcomes.failed) == [0]


class Sources:
    """Kernels that know each of six configs, and what they say of them."""

    def __init__(self, *columns: list[float], weights: list[float], failing: Any = None) -> None:
        self._columns = np.array(columns).T
        self.weights = np.array(weights)
        self._failing = np.zeros(len(columns[0])) if failing is None else np.array(failing)

    def scores(self, configs: list[Config]) -> Any:
        return Sources.by_source(self, configs).mean(axis=1)

    def by_source(self, configs: list[Config]) -> Any:
        return self._columns[[int(str(config["a"])) for config in configs]]

    def failing(self, configs: list[Config]) -> Any:
        return self._failing[[int(str(config["a"])) for config in configs]]


class TestStarting:
    SPACE = Space({"a": list(range(6))})

    def favourites(self, n: int, sources: Sources) -> list[int]:
        return make_search(self.SPACE, sources)._favourites(n)

    def test_the_first_is_best_on_average_and_the_next_where_that_is_not(self) -> None:
        """After 2, which both can live with: 0 gains 0.4 × 0.6 for the first, 5 gains 0.5 × 0.4
        for the second. Then nothing is left to gain, and the best on average is next."""
        first = [0.0, 0.9, 0.4, 0.5, 0.9, 2.0]
        second = [2.0, 0.9, 0.5, 0.6, 0.8, 0.0]
        sources = Sources(first, second, weights=[6.0, 4.0])
        assert self.favourites(6, sources) == [2, 0, 5, 3, 4, 1]

    def test_of_equals_the_one_that_is_best_on_average_is_next(self) -> None:
        first = [0.0, 0.0, 0.0, 0.2, 0.0, 0.0]
        second = [0.9, 0.7, 0.0, 0.0, 0.8, 0.6]
        assert self.favourites(4, Sources(first, second, weights=[1.0, 1.0])) == [2, 3, 5, 1]

    def test_what_is_likely_to_fail_is_as_slow_as_that(self) -> None:
        first = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
        failing = [0.45, 0.0, 0.0, 0.0, 0.0, 0.0]
        sources = Sources(first, weights=[1.0], failing=failing)
        assert self.favourites(3, sources) == [1, 2, 3]

    def test_what_mostly_failed_is_as_slow_as_anything(self) -> None:
        sources = Sources([0.0, 0.1, 0.2, 0.3, 0.4, 0.7], weights=[1.0], failing=[0.6] + [0.0] * 5)
        strategy = make_search(self.SPACE, sources)
        sources.by_source = None  # type: ignore[assignment]
        assert strategy._sources is not None
        assert strategy._sources[:, 0].tolist() == [0.7, 0.1, 0.2, 0.3, 0.4, 0.7]

    @pytest.mark.parametrize(("sources", "starts"), [(1, 2), (3, 4), (4, 5), (7, 5)])
    def test_the_more_sources_the_more_of_their_favourites_come_first(
        self, sources: int, starts: int
    ) -> None:
        columns = np.random.default_rng(0).random((sources, 6)).tolist()
        strategy = TwoViews(self.SPACE, transfer=Sources(*columns, weights=[1.0] * sources))
        assert len(strategy._started(np.arange(6))) == starts

    def test_a_model_chooses_from_the_second_success_on(self) -> None:
        strategy = make_search(self.SPACE, None)
        told = [Trial("w", Config(a=a), Status.OK, Timing((5.0,), "fake")) for a in (0, 1)]
        strategy._design = []
        strategy.tell(told[:1])
        strategy.ask(1)
        assert strategy.choices == 0
        strategy.tell(told)
        strategy.ask(1)
        assert strategy.choices == 1

    def test_builds_are_thought_alike_until_three_were_timed(self) -> None:
        """Three have to be known before the others are guessed; of one of these nothing is."""
        strategy = Quick(self.SPACE)
        costs = [Cost(FrozenMap(work)) for work in ({"build": 1.0}, {"build": 9.0}, {})]
        strategy.tell([replace(trial(row, 5.0), cost=cost) for row, cost in enumerate(costs)])
        assert strategy._build_times().tolist() == [1.0] * 6


class Chooser(Modelled):
    """Takes the first that is free, and counts how often it was asked."""

    name = "chooser"
    choices = 0

    def _choose(self, free: Any) -> int:
        self.choices += 1
        return int(free[0])


def make_search(space: Space, sources: Any) -> Chooser:
    return Chooser(space, 0, transfer=sources)


class Calls:
    """Keeps what a method was called with."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.seen: list[Any] = []
        real = getattr(owner, name)

        def call(*given: Any, **more: Any) -> Any:
            self.seen.append(given[-1])
            return real(*given, **more)

        patch.setattr(owner, name, call)


class TestSizes:
    """How many configs are looked at."""

    SMALL = Space({"a": list(range(40)), "b": list(range(3))})
    WIDE = Space({f"p{k}": list(range(12)) for k in range(9)})

    def test_a_model_lists_twenty_thousand_and_draws_eight(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = Calls(monkeypatch, Space, "is_small")
        monkeypatch.setattr(Space, "sample", lambda *given: drawn.append(given[-1]) or [])
        drawn: list[int] = []
        pool = Candidates(self.WIDE, np.random.default_rng(0))
        assert (asked.seen, drawn) == ([20_000], [8_000])
        assert not pool.refill(np.random.default_rng(0))
        assert drawn == [8_000, 2_000]

    def test_a_search_without_a_model_lists_a_hundred_and_fifty_thousand(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = Calls(monkeypatch, Space, "is_small")
        assert isinstance(pool_of(self.WIDE), SampledPool)
        assert isinstance(pool_of(self.SMALL), ListedPool)
        assert asked.seen == [150_000] * 2

    @pytest.mark.parametrize(("space", "rated"), [(SMALL, 20_000), (WIDE, 1_000)])
    def test_so_many_are_rated_by_what_is_known_beforehand(
        self, space: Space, rated: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drawn = Calls(monkeypatch, SampledPool if space is self.WIDE else ListedPool, "draw")

        class Ratings:
            def scores(self, configs: list[Config]) -> Any:
                return np.arange(len(configs), dtype=float)

        favourites = Anneal(space, transfer=Ratings())._favourites  # type: ignore[arg-type]
        assert drawn.seen == [rated]
        assert len(favourites) == ModelFree.starts == 5

    def test_a_forest_is_asked_about_eight_hundred_and_the_neighbours_of_the_best_three(
        self,
    ) -> None:
        strategy = Forest(Space({"a": list(range(50)), "b": list(range(40))}))
        places = [(3, 4), (20, 30), (44, 9), (10, 17)]
        timings = [Timing((100.0 + at,), "fake") for at in range(4)]
        strategy.tell(
            [
                Trial("w", Config(a=a, b=b), Status.OK, timing)
                for (a, b), timing in zip(places, timings, strict=True)
            ]
        )
        rows = strategy._moves(np.flatnonzero(strategy._candidates.free))
        around = {
            40 * a + b
            for x, y in places[:3]
            for a in range(50)
            for b in range(40)
            if ((a == x) != (b == y))
        }
        assert around <= set(rows.tolist())
        assert 800 <= len(rows) <= 800 + len(around)
        fourth = {40 * 10 + b for b in range(40)} | {40 * a + 17 for a in range(50)}
        assert not fourth <= set(rows.tolist())

    @pytest.mark.parametrize(("count", "guided"), [(1024, False), (1025, True)])
    def test_a_thousand_configs_are_raced_whole(self, count: int, guided: bool) -> None:
        assert make_strategy("auto", Space({"a": list(range(count))})).guided is guided
