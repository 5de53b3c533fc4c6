"""What each strategy does beyond the contract, and how one is chosen by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.space import Space
from whet.core.status import Status
from whet.core.trial import Trial
from whet.search import _CLASSES, STRATEGIES, Strategy, make_strategy
from whet.search.unguided import Given, Grid, Random, spread

SMALL = Space({"a": [4, 1, 2], "b": [2, 1]}, constraints=["a % b == 0"])


def wide(parameters: int, values: int) -> Space:
    return Space({f"p{k}": list(range(values)) for k in range(parameters)})


class TestGrid:
    def test_it_follows_the_authors_order(self) -> None:
        assert Grid(SMALL).ask(99) == list(SMALL)

    def test_what_is_known_is_passed_over(self) -> None:
        strategy = Grid(SMALL)
        strategy.tell([Trial("w", SMALL.first or Config(), Status.BUILD_ERROR)])
        assert strategy.ask(1) == list(SMALL)[1:2]


class TestRandom:
    def test_the_authors_first_config_comes_first(self) -> None:
        for seed in range(5):
            assert Random(SMALL, seed).ask(1) == [Config(a=4, b=2)]

    def test_seeds_differ(self) -> None:
        space = wide(8, 8)
        assert Random(space, 1).ask(20) != Random(space, 2).ask(20)

    def test_how_many_are_asked_for_at_once_does_not_matter(self) -> None:
        space = wide(8, 8)
        one, many = Random(space, 3), Random(space, 3)
        assert [config for _ in range(30) for config in one.ask(1)] == many.ask(30)

    def test_every_order_of_a_small_space_is_as_likely(self) -> None:
        space = Space({"a": [0, 1, 2, 3]})
        seconds = Counter(Random(space, seed).ask(2)[1]["a"] for seed in range(600))
        assert set(seconds) == {1, 2, 3}
        assert all(150 < count < 250 for count in seconds.values())

    @pytest.mark.medium
    def test_a_large_space_is_covered_evenly(self) -> None:
        asked = Random(wide(12, 4), seed=1).ask(2000)
        assert len(set(asked)) == 2000
        counts = Counter(config["p5"] for config in asked)
        assert all(430 < counts[value] < 570 for value in range(4))

    def test_a_space_in_between_is_used_up_to_the_last_config(self) -> None:
        space = wide(4, 6)
        strategy = Random(space, seed=2)
        assert len({config for _ in range(30) for config in strategy.ask(50)}) == 6**4
        assert strategy.ask(1) == []


class TestGiven:
    def test_it_asks_for_nothing_and_has_enough(self) -> None:
        strategy = Given()
        strategy.tell([])
        assert (strategy.ask(9), strategy.enough, strategy.guided) == ([], True, False)


class TestAuto:
    def test_it_takes_all_of_a_small_space_after_the_authors_first(self) -> None:
        asked = make_strategy("auto", SMALL).ask(99)
        assert asked[0] == SMALL.first
        assert set(asked) == set(SMALL)

    def test_a_space_that_is_tried_whole_comes_in_random_order(self) -> None:
        space = wide(3, 5)
        assert make_strategy("auto", space, 5).ask(50) == Random(space, 5).ask(50)

    def test_one_that_is_not_is_searched(self) -> None:
        space = wide(3, 5)
        searching = make_strategy("auto", space, 5, whole=False)
        assert searching.guided
        assert searching.ask(50) != Random(space, 5).ask(50)

    def test_it_keeps_its_name(self) -> None:
        assert make_strategy("auto", SMALL).name == "auto"


class TestByName:
    @pytest.mark.parametrize("name", STRATEGIES)
    def test_every_name_gives_the_strategy_of_that_name(self, name: str) -> None:
        strategy = make_strategy(name, SMALL, 0)
        assert isinstance(strategy, Strategy)
        assert strategy.name == name

    def test_what_is_known_beforehand_is_handed_on_where_it_is_of_use(self) -> None:
        def scores(configs: Sequence[Config]) -> np.ndarray:
            return np.array([abs(float(str(config["a"])) - 3) for config in configs])

        prior = SimpleNamespace(scores=scores)
        space = Space({"a": list(range(20))})
        asked = make_strategy("coordinate", space, transfer=prior).ask(2)  # type: ignore[arg-type]
        assert asked == [Config(a=0), Config(a=3)]
        unguided = make_strategy("grid", space, transfer=prior)  # type: ignore[arg-type]
        assert unguided.ask(2) == [Config(a=0), Config(a=1)]

    @pytest.mark.parametrize("name", ["anneal", "coordinate", "evolution", "genetic", "gp", "tpe"])
    def test_without_a_seed_it_is_0(self, name: str) -> None:
        module, _, made = _CLASSES[name].partition(":")
        strategy = getattr(import_module(module), made)
        space = wide(2, 9)
        assert strategy(space).ask(9) == strategy(space, 0).ask(9) != strategy(space, 1).ask(9)

    def test_an_instance_is_taken_as_it_is(self) -> None:
        strategy = Grid(SMALL)
        assert make_strategy(strategy, SMALL, 0) is strategy

    def test_a_misspelt_name_is_named_with_what_would_be_valid(self) -> None:
        with pytest.raises(UsageError) as caught:
            make_strategy("randon", SMALL, 0)
        assert str(caught.value) == (
            "unknown search 'randon'; did you mean 'random'? valid: " + ", ".join(STRATEGIES)
        )

    def test_something_else_is_refused(self) -> None:
        with pytest.raises(UsageError, match="no name, ask and tell"):
            make_strategy(42, SMALL, 0)  # type: ignore[arg-type]


class TestOfOnesOwn:
    class Told:
        name = "told"

        def ask(self, n: int) -> list[Config]:
            return [Config(a=1)][:n]

        def tell(self, trials: Sequence[Trial]) -> None:
            self.told = list(trials)

    def test_one_that_does_not_say_whether_it_is_guided_is_not(self) -> None:
        mine = self.Told()
        strategy = make_strategy(mine, SMALL)  # type: ignore[arg-type]
        assert not strategy.guided
        assert strategy.name == "told"
        assert strategy.ask(1) == [Config(a=1)]
        strategy.tell([])
        assert mine.told == []

    def test_one_that_does_is_used_as_it_is(self) -> None:
        class Guided(self.Told):  # type: ignore[name-defined,misc]
            guided = True

        mine = Guided()
        assert make_strategy(mine, SMALL) is mine

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_all_of_ours_say_it(self, name: str) -> None:
        assert isinstance(make_strategy(name, SMALL), Strategy)


class TestSpread:
    def test_the_authors_first_comes_first_and_the_others_are_far_apart(self) -> None:
        space = Space({"tile": [16, 32, 64, 128, 256], "warps": [1, 2, 4, 8]})
        chosen = [(config["tile"], config["warps"]) for config in spread(space, 4)]
        assert chosen[0] == (16, 1)
        assert set(chosen[1:]) == {(256, 8), (256, 1), (16, 8)}

    @pytest.mark.medium
    @given(st.integers(1, 40))
    def test_none_comes_twice_and_all_are_of_the_space(self, n: int) -> None:
        space = Space({"a": [1, 2, 3], "b": ["x", "y"], "c": [True, False]})
        chosen = spread(space, n)
        assert len(chosen) == len(set(chosen)) == min(n, 12)
        assert all(config in space for config in chosen)

    def chosen(self, n: int, *points: str) -> list[str]:
        names = "abcd"[: len(points[0])]
        space = Space([dict(zip(names, map(int, point), strict=True)) for point in points])
        return ["".join(str(config[name]) for name in names) for config in spread(space, n)]

    def test_far_is_by_the_straight_distance(self) -> None:
        """Two thirds of the way in three parameters is farther than all of it in one."""
        assert self.chosen(2, "000", "300", "222", "030", "003") == ["000", "222"]
        assert self.chosen(3, "0000", "3333", "0333", "1113") == ["0000", "3333", "1113"]
