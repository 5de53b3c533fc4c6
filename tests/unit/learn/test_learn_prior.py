"""What other workloads, and rules of thumb, say beforehand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor

from whet.core.config import Config
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.learn.costmodel import CostModel
from whet.learn.features import Codebook, Features
from whet.learn.keys import key_distance
from whet.learn.prior import Rules, TablePrior, portfolio_of, prior_for, prior_from, times_of

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
        assert scores == pytest.approx([math.log(time_of(one, 2) / 101) for one in SPACE])

    def test_a_later_trial_of_a_config_replaces_the_earlier(self) -> None:
        first = Config(a=1, b=1)
        prior = prior_from([[trial(first, 1.0), trial(first, 200.0), *table(2)[1:]]], SPACE)
        assert prior is not None
        assert prior.scores([first])[0] == pytest.approx(math.log(200 / 101))

    def test_one_that_was_timed_and_then_failed_has_no_score(self) -> None:
        broken, works = Config(a=1, b=1), Config(a=2, b=1)
        wrong = Trial("w", broken, Status.RUN_ERROR, Timing((1.0,), "fake"))
        prior = prior_from([[wrong, trial(works, 5.0)]], SPACE)
        assert prior is not None
        assert math.isnan(prior.scores([broken])[0])
        assert prior.scores([works])[0] == 0.0

    def test_beyond_two_logs_a_config_is_just_slow(self) -> None:
        fast, slow = Config(a=1, b=1), Config(a=2, b=1)
        prior = prior_from([[trial(fast, 1.0), trial(slow, 900.0)]], SPACE)
        assert prior is not None
        assert prior.scores([fast, slow]).tolist() == [0.0, 2.0]

    def test_a_score_is_the_mean_over_the_sources_that_know(self) -> None:
        both, one, none = Config(a=1, b=1), Config(a=2, b=1), Config(a=4, b=1)
        prior = prior_from(
            [
                [trial(both, 2.0), trial(one, 4.0), trial(Config(a=8, b=1), 1.0)],
                [trial(both, 4.0), trial(Config(a=8, b=1), 1.0)],
            ],
            SPACE,
        )
        assert prior is not None
        expected = [math.log(8) / 2, math.log(4), math.nan]
        assert prior.scores([both, one, none]) == pytest.approx(expected, nan_ok=True)

    def test_failures_are_remembered_as_a_chance(self) -> None:
        broken, works = Config(a=1, b=1), Config(a=2, b=1)
        prior = prior_from([[trial(broken, None), trial(works, 1.0)]], SPACE)
        assert prior is not None
        chances = prior.failing([broken, works, Config(a=4, b=1)])
        assert chances[:2] == pytest.approx([1.1 / 1.5, 0.1 / 1.5])
        assert math.isnan(chances[2])
        assert math.isnan(prior.scores([broken])[0])

    @pytest.mark.medium
    def test_what_no_source_tried_is_guessed_once_enough_is_known(self) -> None:
        known = [one for one in table(2) if one.config["b"] != 3]
        prior = prior_from([known], SPACE)
        assert prior is not None
        left = [config for config in SPACE if config["b"] == 3]
        book = Codebook(SPACE)
        codes = book.codes([one.config for one in known])
        features = Features(book, codes)
        reference = ExtraTreesRegressor(60, min_samples_leaf=2, random_state=0)
        logs = [math.log(time_of(one.config, 2) / 101) for one in known]
        reference.fit(features.of(codes), logs)
        expected = reference.predict(features.of(book.codes(left)))
        assert prior.scores(left) == pytest.approx(expected)
        assert math.isnan(prior.scores([Config(a=3, b=3)])[0])

    @pytest.mark.parametrize(("known", "guessed"), [(19, False), (20, True)])
    def test_too_little_is_not_generalised(self, known: int, guessed: bool) -> None:
        prior = prior_from([table(2)[:known]], SPACE)
        assert prior is not None
        assert math.isnan(prior.scores([Config(a=16, b=6)])[0]) is not guessed


class TestSizes:
    def test_the_distance_counts_doublings(self) -> None:
        assert key_distance({"M": 1023, "d": "f16"}, {"M": 2047, "d": "f16"}) == 1.0
        assert key_distance({"M": 8, "d": "f16"}, {"M": 8, "d": "f32"}) == 3.0
        assert key_distance({"M": 1, "N": 1}, {"M": 15, "N": 15}) == pytest.approx(math.sqrt(18))
        assert key_distance({"M": -1}, {"M": 3}) == 3.0
        assert key_distance({"M": 1, "on": True}, {"M": 1, "on": False}) == 3.0
        assert key_distance({"M": 1, "d": "f16"}, {"M": 1}) == 3.0
        assert key_distance({"M": 1, "N": 2}, {"M": 1}) == 3.0

    def test_the_nearest_size_counts_most(self) -> None:
        told = [({"M": 256}, table(1)), ({"M": 8192}, table(3))]
        prior = prior_for({"M": 300}, SPACE, told)
        assert prior is not None
        assert list(SPACE)[int(np.argmin(prior.scores(list(SPACE))))] == Config(a=2, b=1)

    def test_a_size_counts_by_its_nearness_and_by_how_much_was_tried_there(self) -> None:
        """Half at 0.7 doublings, and half as much with 20 configs as with all there are."""
        told = [({"M": 1023}, table(1)), ({"M": 4095}, table(3)[:10])]
        prior = prior_for({"M": 2047}, SPACE, told, guess=False)
        assert isinstance(prior, TablePrior)
        half = 0.5 ** (1 / 0.7)
        assert prior.weights == pytest.approx([half * 30 / 50, half * 10 / 30])
        config = Config(a=1, b=2)
        near, far = math.log(202 / 101), math.log(402 / 301)
        expected = (prior.weights @ [near, far]) / prior.weights.sum()
        assert prior.scores([config])[0] == pytest.approx(expected)
        # Of those ten configs the second size knows nothing.
        last = Config(a=16, b=6)
        assert prior.scores([last])[0] == pytest.approx(math.log(time_of(last, 1) / 101))

    def test_only_the_nearest_two_dozen_are_learned_from(self) -> None:
        told = [({"M": 2.0**k}, table(1)[:3]) for k in range(30)]
        prior = prior_for({"M": 1}, SPACE, told, guess=False)
        assert isinstance(prior, TablePrior)
        assert len(prior.weights) == 24
        assert prior.weights[0] == pytest.approx(3 / 23)
        assert (np.diff(prior.weights) < 0).all()

    def test_the_chance_of_failure_is_drawn_a_little_towards_success(self) -> None:
        config, other = list(SPACE)[:2]
        told = [
            ({"M": 1}, [trial(config, None), trial(other, 5.0)]),
            ({"M": 2}, [trial(config, 1.0)]),
        ]
        prior = prior_for({"M": 4}, SPACE, told, guess=False)
        assert prior is not None
        chances = prior.failing([config, other, Config(a=16, b=6)])
        assert chances == pytest.approx([1.1 / 2.5, 0.1 / 1.5, math.nan], nan_ok=True)

    def test_beyond_two_logs_a_config_is_just_slow_there_too(self) -> None:
        fast, slow = list(SPACE)[:2]
        prior = prior_for({"M": 4}, SPACE, [({"M": 1}, [trial(fast, 1.0), trial(slow, 900.0)])])
        assert prior is not None
        assert prior.scores([fast, slow]).tolist() == [0.0, 2.0]

    @pytest.mark.medium
    def test_what_no_size_tried_is_what_the_model_expects(self) -> None:
        told = [({"M": m}, [one for one in table(2) if one.config["b"] != 3]) for m in (1, 8)]
        left = [config for config in SPACE if config["b"] == 3]
        prior, unguessed = (prior_for({"M": 2}, SPACE, told, guess=one) for one in (True, False))
        model = CostModel.fitted(SPACE, told)
        assert prior is not None
        assert unguessed is not None
        assert model is not None
        assert prior.scores(left) == pytest.approx(model.predict({"M": 2}, left)[0])
        assert np.isnan(unguessed.scores(left)).all()

    def test_nothing_told_is_no_prior(self) -> None:
        assert prior_for({"M": 1}, SPACE, []) is None
        assert prior_for({"M": 1}, SPACE, [({"M": 2}, [])]) is None

    @pytest.mark.medium
    def test_the_model_learns_how_the_best_moves_with_the_size(self) -> None:
        pytest.importorskip("sklearn")
        told = [({"M": 2**size}, table(size - 6)) for size in (6, 7, 9, 10)]
        model = CostModel.fitted(SPACE, told)
        assert model is not None
        for size, best in ((64, 1), (1024, 16)):
            mean, deviation = model.predict({"M": size}, list(SPACE))
            assert list(SPACE)[int(mean.argmin())]["a"] == best
            assert (deviation >= 0).all()

    @pytest.mark.parametrize(("slow", "enough"), [(7, False), (6, True)])
    def test_two_dozen_outcomes_that_are_not_just_slow_are_enough(
        self, slow: int, enough: bool
    ) -> None:
        told = [trial(config, 3000.0 if at < slow else 1001.0) for at, config in enumerate(SPACE)]
        assert (CostModel.fitted(SPACE, [({"M": 1}, told)]) is not None) is enough


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

    def test_one_that_fails_counts_as_reaching_a_hundredth(self) -> None:
        a, b = Config(a=1), Config(a=2)
        portfolio = portfolio_of([{a: 1.0}, {b: 1.0}, {b: 1.0, a: 400.0}], 2)
        assert portfolio.configs == (b, a)
        assert portfolio.coverage == pytest.approx([0.01 ** (1 / 3), 1.0])

    def test_it_has_no_more_than_were_asked_for(self) -> None:
        times = [{Config(a=k): 1.0} for k in range(4)]
        assert len(portfolio_of(times, 2).configs) == 2
        assert portfolio_of(times, 0).configs == ()

    def test_nothing_known_gives_nothing(self) -> None:
        assert portfolio_of([], 3).configs == ()
        assert portfolio_of([{}], 3).configs == ()

    def test_times_are_those_of_the_latest_success(self) -> None:
        one, other = Config(a=1), Config(a=2)
        trials = [trial(one, 5.0), trial(one, 7.0), trial(other, 3.0), trial(other, None)]
        assert times_of(trials) == {one: 7.0}


def slower(space: Space, **config: int) -> float:
    book = Codebook(space)
    return float(Rules(book).of(book.codes([Config(config)]))[0])


BLOCKS = Space({"block_size_x": [32, 48, 64, 96, 128], "block_size_y": [1, 2, 4, 8]})


def test_a_usual_number_of_threads_in_powers_of_two_is_without_fault() -> None:
    assert slower(BLOCKS, block_size_x=32, block_size_y=4) == 0
    assert slower(BLOCKS, block_size_x=128, block_size_y=1) == 0


def test_an_odd_multiple_is_thought_slower_than_the_round_numbers_around_it() -> None:
    space = Space({"tile": [64, 96, 128]})
    assert slower(space, tile=64) == slower(space, tile=128) == 0 < slower(space, tile=96)


def test_numbers_below_the_width_of_a_warp_may_be_anything() -> None:
    assert Rules(Codebook(Space({"unroll": [1, 3, 5, 20]}))).silent


def test_where_warps_are_counted_block_sizes_are_not_threads() -> None:
    space = Space({"num_warps": [2, 4, 8], "BLOCK_SIZE_X": [32, 64, 128]})
    assert slower(space, num_warps=4, BLOCK_SIZE_X=128) == 0
    assert slower(space, num_warps=8, BLOCK_SIZE_X=32) > 0


def test_names_and_switches_are_of_no_interest() -> None:
    assert Rules(Codebook(Space({"layout": ["row", "col"], "pad": [True, False]}))).silent


def test_each_doubling_of_the_odd_part_is_a_tenth_slower() -> None:
    space = Space({"tile": [64, 96, 160]})
    assert slower(space, tile=96) == pytest.approx(0.1 * math.log2(3))
    assert slower(space, tile=160) == pytest.approx(0.1 * math.log2(5))


def test_doublings_away_from_128_threads_count_by_their_square() -> None:
    assert slower(BLOCKS, block_size_x=128, block_size_y=8) == pytest.approx(0.05 * 3**2)
    assert slower(BLOCKS, block_size_x=32, block_size_y=1) == pytest.approx(0.05 * 2**2)
    warps = Space({"num_warps": [1, 4, 16]})
    assert slower(warps, num_warps=16) == slower(warps, num_warps=1) == pytest.approx(0.2)


def test_a_size_of_a_warp_is_wide_enough_to_be_judged() -> None:
    space = Space({"tile": [24, 32]})
    assert slower(space, tile=24) == pytest.approx(0.1 * math.log2(3))


def test_sizes_that_are_no_whole_numbers_or_not_positive_are_of_no_interest() -> None:
    assert Rules(Codebook(Space({"tile": [32.0, 48.5, 64.0]}))).silent
    assert Rules(Codebook(Space({"threads": [0, 64, 128]}))).silent


def test_either_rule_alone_is_an_opinion() -> None:
    assert not Rules(Codebook(Space({"threads": [2, 4]}))).silent
    assert not Rules(Codebook(Space({"tile": [64, 96]}))).silent


def test_a_config_without_a_size_is_without_fault_in_it() -> None:
    space = Space([{"tile": 96, "a": 1}, {"tile": 64, "a": 2}, {"a": 1}])
    assert slower(space, a=1) == 0
