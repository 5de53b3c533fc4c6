"""What the strategies with a model do beyond the contract."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from whet.core.config import Config
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.learn.prior import prior_from
from whet.search import make_strategy
from whet.search.modelled import Candidates

MODELS = ("auto", "gp", "tpe", "forest", "evolve-model")
SPACE = Space(
    {
        "bx": [16, 32, 48, 64, 96, 128, 256],
        "by": [1, 2, 4, 8, 16],
        "tx": [1, 2, 3, 4],
        "ty": [1, 2, 3, 4],
        "shared": [0, 1],
        "vector": [0, 1],
    }
)

Time = Callable[[Config], float | None]


def bowl(config: Config) -> float:
    """Best at bx=64 by=4 tx=2 ty=2 shared=1 vector=1, and smooth around it."""
    bx, by, tx, ty = (float(str(config[name])) for name in ("bx", "by", "tx", "ty"))
    far = abs(math.log2(bx / 64)) + abs(math.log2(by / 4)) + abs(tx - 2) + abs(ty - 2)
    return 100 * math.exp(
        0.25 * far + 0.4 * (config["shared"] == 0) + 0.3 * (config["vector"] == 0)
    )


def outcome(config: Config, time: Time) -> Trial:
    ns = time(config)
    if ns is None:
        return Trial("w", config, Status.BUILD_ERROR)
    return Trial("w", config, Status.OK, Timing((ns,), "fake"))


def tuned(
    name: str, time: Time, evals: int, *, seed: int = 0, space: Space = SPACE, batch: int = 1
) -> list[Config]:
    strategy = make_strategy(name, space, seed)
    asked: list[Config] = []
    while len(asked) < evals:
        configs = strategy.ask(min(batch, evals - len(asked)))
        if not configs:
            break
        asked += configs
        strategy.tell([outcome(config, time) for config in configs])
    return asked


@pytest.mark.parametrize("name", MODELS)
class TestEveryModel:
    @pytest.mark.medium
    def test_it_finds_more_than_a_random_search(self, name: str) -> None:
        def reached(search: str) -> float:
            runs = [tuned(search, bowl, 50, seed=seed) for seed in range(3)]
            return float(np.mean([min(map(bowl, run)) for run in runs]))

        assert reached(name) < reached("random")

    @pytest.mark.medium
    def test_it_learns_where_configs_fail(self, name: str) -> None:
        def half(config: Config) -> float | None:
            return None if config["shared"] == 0 else bowl(config)

        failed = [config["shared"] == 0 for config in tuned(name, half, 45)]
        assert sum(failed[15:]) < 11

    @pytest.mark.medium
    def test_it_goes_on_where_nearly_everything_fails(self, name: str) -> None:
        def rarely(config: Config) -> float | None:
            return bowl(config) if int(config.id, 16) % 20 == 0 else None

        assert len(set(tuned(name, rarely, 80))) == 80

    @pytest.mark.medium
    def test_a_constant_time_is_no_trouble(self, name: str) -> None:
        assert len(set(tuned(name, lambda _: 100.0, 40))) == 40

    def test_a_space_of_two_is_used_up(self, name: str) -> None:
        assert len(tuned(name, lambda _: 1.0, 5, space=Space({"a": [1, 2]}))) == 2

    @pytest.mark.medium
    def test_batches_do_not_cost_what_was_gained(self, name: str) -> None:
        best = min(map(bowl, tuned(name, bowl, 64, batch=8)))
        assert best < 160

    @pytest.mark.medium
    def test_it_takes_what_is_known_from_elsewhere(self, name: str) -> None:
        prior = prior_from([[outcome(config, bowl) for config in SPACE]], SPACE)
        first = make_strategy(name, SPACE, 0, transfer=prior).ask(3)
        assert min(map(bowl, first)) == 100


class TestAuto:
    @pytest.mark.medium
    def test_it_comes_close_to_the_best_of_a_larger_one_in_few_evaluations(self) -> None:
        found = [min(map(bowl, tuned("auto", bowl, 30, seed=seed))) for seed in range(4)]
        assert float(np.mean([100 / ns for ns in found])) > 0.9

    @pytest.mark.medium
    def test_the_neighbours_of_the_best_are_looked_at_before_long(self) -> None:
        asked = tuned("auto", bowl, 150)
        best = min(asked, key=bowl)
        around = set(SPACE.neighbours(best))
        assert len(around & set(asked)) > len(around) / 2

    @pytest.mark.medium
    def test_a_prior_that_is_wrong_does_not_keep_it_from_the_best(self) -> None:
        def opposite(config: Config) -> float:
            return 1e6 / bowl(config)

        wrong = prior_from([[outcome(config, opposite) for config in SPACE]], SPACE)
        strategy = make_strategy("auto", SPACE, 1, transfer=wrong)
        best = math.inf
        for _ in range(60):
            (config,) = strategy.ask(1)
            best = min(best, bowl(config))
            strategy.tell([outcome(config, bowl)])
        assert best < 125

    def test_a_prior_that_knows_nothing_of_this_space_changes_nothing(self) -> None:
        class Silent:
            def scores(self, configs: list[Config]) -> np.ndarray:
                return np.full(len(configs), math.nan)

            failing = scores

        with_prior = make_strategy("auto", SPACE, 5, transfer=Silent())  # type: ignore[arg-type]
        assert with_prior.ask(8) == make_strategy("auto", SPACE, 5).ask(8)


class TestCandidates:
    @pytest.mark.medium
    def test_a_small_space_is_there_as_a_whole(self) -> None:
        candidates = Candidates(SPACE, np.random.default_rng(0))
        assert candidates.whole
        assert set(candidates.configs()) == set(SPACE)

    @pytest.mark.medium
    def test_a_large_space_admits_valid_configs_it_did_not_draw(self) -> None:
        space = Space({f"p{k}": list(range(16)) for k in range(12)}, ["p0 != p1"])
        candidates = Candidates(space, np.random.default_rng(0))
        before = len(candidates)
        stranger = Config({f"p{k}": (k == 1) * 1 for k in range(12)})
        row = candidates.row(stranger)
        assert row == before
        assert candidates.config(row) == stranger
        assert candidates.row(stranger.replace(p1=0)) is None

    def test_neighbours_differ_in_one_parameter_and_are_free(self) -> None:
        candidates = Candidates(SPACE, np.random.default_rng(0))
        row = candidates.row(Config(bx=64, by=4, tx=2, ty=2, shared=1, vector=1))
        assert row is not None
        around = candidates.neighbours(row)
        assert len(around) == 6 + 4 + 3 + 3 + 1 + 1
        candidates.take(int(around[0]))
        assert len(candidates.neighbours(row)) == len(around) - 1
