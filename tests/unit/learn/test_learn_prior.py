"""What other workloads say beforehand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from whet.core.config import Config
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.learn.costmodel import CostModel, key_distance, prior_for
from whet.learn.portfolio import portfolio_of, times_of
from whet.learn.prior import prior_from

SPACE = Space({"a": [1, 2, 4, 8, 16], "b": [1, 2, 3, 4, 5, 6]})


def trial(config: Config, ns: float | None) -> Trial:
    if ns is None:
        return Trial("w", config, Status.RUN_ERROR)
    return Trial("w", config, Status.OK, Timing((ns,), "fake"))


def time_of(config: Config, best: int) -> float:
    return 100.0 * (1 + abs(math.log2(int(str(config["a"]))) - best)) + int(str(config["b"]))


def table(best: int, scale: float = 1.0) -> list[Trial]:
    return [trial(config, scale * time_of(config, best)) for config in SPACE]


class TestPriorFrom:
    def test_without_a_success_there_is_none(self) -> None:
        assert prior_from([], SPACE) is None
        assert prior_from([[trial(config, None) for config in SPACE]], SPACE) is None

    def test_it_is_relative_to_the_best_of_each_source(self) -> None:
        prior = prior_from([table(2), table(2, scale=1000.0)], SPACE)
        assert prior is not None
        scores = prior.scores(list(SPACE))
        assert scores.min() == 0.0
        assert list(SPACE)[int(scores.argmin())] == Config(a=4, b=1)

    def test_a_later_trial_of_a_config_replaces_the_earlier(self) -> None:
        first = Config(a=1, b=1)
        prior = prior_from([[trial(first, 1.0), trial(first, 200.0), *table(2)[1:]]], SPACE)
        assert prior is not None
        assert prior.scores([first])[0] > 0.5

    def test_failures_are_remembered_as_a_chance(self) -> None:
        broken, works = Config(a=1, b=1), Config(a=2, b=1)
        prior = prior_from([[trial(broken, None), trial(works, 1.0)]], SPACE)
        assert prior is not None
        chances = prior.failing([broken, works, Config(a=4, b=1)])
        assert chances[0] > 0.5 > chances[1]
        assert math.isnan(chances[2])
        assert math.isnan(prior.scores([broken])[0])

    def test_what_no_source_tried_is_guessed_once_enough_is_known(self) -> None:
        pytest.importorskip("sklearn")
        known = [one for one in table(2) if one.config["b"] != 3]
        prior = prior_from([known], SPACE)
        assert prior is not None
        left = [config for config in SPACE if config["b"] == 3]
        assert int(np.argmin(prior.scores(left))) == 2

    def test_too_little_is_not_generalised(self) -> None:
        prior = prior_from([table(2)[:5]], SPACE)
        assert prior is not None
        assert math.isnan(prior.scores([Config(a=16, b=6)])[0])


class TestSizes:
    def test_the_distance_counts_doublings(self) -> None:
        assert key_distance({"M": 1023, "d": "f16"}, {"M": 2047, "d": "f16"}) == 1.0
        assert key_distance({"M": 8, "d": "f16"}, {"M": 8, "d": "f32"}) == 3.0

    def test_the_nearest_size_counts_most(self) -> None:
        told = [({"M": 256}, table(1)), ({"M": 8192}, table(3))]
        prior = prior_for({"M": 300}, SPACE, told)
        assert prior is not None
        assert list(SPACE)[int(np.argmin(prior.scores(list(SPACE))))] == Config(a=2, b=1)

    def test_nothing_told_is_no_prior(self) -> None:
        assert prior_for({"M": 1}, SPACE, []) is None
        assert prior_for({"M": 1}, SPACE, [({"M": 2}, [])]) is None

    def test_the_model_learns_how_the_best_moves_with_the_size(self) -> None:
        pytest.importorskip("sklearn")
        told = [({"M": 2**size}, table(size - 6)) for size in (6, 7, 9, 10)]
        model = CostModel.fitted(SPACE, told)
        assert model is not None
        for size, best in ((64, 1), (1024, 16)):
            mean, deviation = model.predict({"M": size}, list(SPACE))
            assert list(SPACE)[int(mean.argmin())]["a"] == best
            assert (deviation >= 0).all()

    def test_a_model_of_a_handful_is_refused(self) -> None:
        assert CostModel.fitted(SPACE, [({"M": 1}, table(1)[:5])]) is None


class TestPortfolio:
    def test_it_covers_workloads_one_after_another(self) -> None:
        a, b, c = Config(a=1), Config(a=2), Config(a=3)
        portfolio = portfolio_of([{a: 1.0, b: 4.0, c: 2.0}, {a: 4.0, b: 1.0, c: 2.0}], 3)
        assert portfolio.coverage[0] == pytest.approx(0.5)
        assert portfolio.coverage[-1] == pytest.approx(1.0)
        assert {a, b} <= set(portfolio.configs)

    def test_it_stops_when_nothing_is_left_to_gain(self) -> None:
        a, b = Config(a=1), Config(a=2)
        portfolio = portfolio_of([{a: 1.0, b: 2.0}, {a: 1.0, b: 3.0}], 5)
        assert portfolio.configs == (a,)

    def test_a_config_that_fails_somewhere_does_not_cover_it(self) -> None:
        a, b = Config(a=1), Config(a=2)
        assert portfolio_of([{a: 1.0, b: 1.1}, {b: 1.0}], 1).configs == (b,)

    def test_nothing_known_gives_nothing(self) -> None:
        assert portfolio_of([], 3).configs == ()
        assert portfolio_of([{}], 3).configs == ()

    def test_times_are_those_of_the_latest_success(self) -> None:
        one, other = Config(a=1), Config(a=2)
        trials = [trial(one, 5.0), trial(one, 7.0), trial(other, 3.0), trial(other, None)]
        assert times_of(trials) == {one: 7.0}
