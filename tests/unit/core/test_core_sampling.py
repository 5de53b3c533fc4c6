import itertools
import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from scipy import stats

from whet.core import counting
from whet.core.config import Config
from whet.core.errors import SpaceError
from whet.core.space import Space

# With fixed seeds a right sampler passes once and for all; a wrong one is off by far more.
SIGNIFICANCE = 1e-3


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def lopsided() -> Space:
    """Binding `a` first and then any `b` that fits would draw a=1 b=0 ten times too often."""
    return Space({"a": range(4), "b": range(32)}, ["a == 0 or b < a"])


def assert_uniform(drawn: Iterable[Config], space: Space) -> None:
    counts = Counter(drawn)
    assert stats.chisquare([counts[config] for config in space]).pvalue > SIGNIFICANCE


class TestUniformity:
    @pytest.mark.medium
    def test_of_draws_with_replacement(self) -> None:
        space = lopsided()
        assert_uniform(space.sample(generator(), 20_000, replace=True), space)

    @pytest.mark.medium
    def test_of_distinct_draws(self) -> None:
        space = lopsided()
        rng = generator()
        drawn = [config for _ in range(2_000) for config in space.sample(rng, 5)]
        assert_uniform(drawn, space)

    def test_of_a_list(self) -> None:
        space = Space([{"a": value} for value in range(20)], ["a % 3 != 0"])
        assert_uniform(space.sample(generator(), 10_000, replace=True), space)

    @pytest.mark.slow
    def test_across_independent_components(self) -> None:
        space = Space(
            {
                "a": range(4),
                "x": ["u", "v", "w"],
                "b": range(6),
                "y": range(3),
                "free": [True, False],
            },
            ["a < b", "x != 'u' or y == 0"],
        )
        assert_uniform(space.sample(generator(1), 40_000, replace=True), space)

    @pytest.mark.medium
    def test_where_the_authors_order_is_not_the_one_to_count_in(self) -> None:
        names = ["p2", "p4", "p0", "p3", "p1"]
        chain = [f"p{at} % p{at + 1} == 0" for at in range(4)]
        space = Space({name: range(1, 33) for name in names}, chain)
        assert_uniform(space.sample(generator(2), 30_000, replace=True), space)

    @pytest.mark.medium
    def test_of_a_parameter_of_a_space_too_large_to_enumerate(self) -> None:
        names = [f"p{at}" for at in range(8)]
        space = Space({name: range(1, 33) for name in names}, [f"{' * '.join(names)} <= 4096"])
        completions = _products_of(7, 4096)
        expected = np.array(
            [
                sum(count for product, count in completions.items() if product * value <= 4096)
                for value in range(1, 33)
            ]
        )
        assert space.count == expected.sum() > 10**6
        drawn = Counter(config["p3"] for config in space.sample(generator(), 5_000))
        observed = [drawn[value] for value in range(1, 33)]
        assert stats.chisquare(observed, expected / expected.sum() * 5_000).pvalue > SIGNIFICANCE


def _products_of(factors: int, limit: int) -> Counter[int]:
    products = Counter({1: 1})
    for _ in range(factors):
        grown: Counter[int] = Counter()
        for product, count in products.items():
            for value in range(1, 33):
                if product * value <= limit:
                    grown[product * value] += count
        products = grown
    return products


class TestDrawing:
    def test_is_distinct_unless_told_otherwise(self) -> None:
        assert len(set(lopsided().sample(generator(), 30))) == 30
        assert len(set(lopsided().sample(generator(), 200, replace=True))) <= 38

    @pytest.mark.parametrize("n", [38, 100])
    def test_as_many_as_there_are_gives_all_of_them_shuffled(self, n: int) -> None:
        space = lopsided()
        drawn = space.sample(generator(), n)
        assert drawn != list(space)
        assert sorted(drawn, key=str) == sorted(space, key=str)

    def test_depends_on_nothing_but_the_generator(self) -> None:
        assert lopsided().sample(generator(3), 9) == lopsided().sample(generator(3), 9)
        assert lopsided().sample(generator(3), 9) != lopsided().sample(generator(4), 9)

    @pytest.mark.medium
    def test_works_where_the_count_is_beyond_64_bits(self) -> None:
        space = Space({f"p{at}": range(100) for at in range(16)}, ["p0 < p1"])
        drawn = space.sample(generator(), 2_000)
        assert space.count == 4950 * 100**14
        assert all(config in space for config in drawn)
        counts = Counter(config["p15"] for config in drawn)
        assert stats.chisquare([counts[value] for value in range(100)]).pvalue > SIGNIFICANCE

    def test_none_gives_none_and_fewer_is_refused(self) -> None:
        assert lopsided().sample(generator(), 0) == []
        with pytest.raises(SpaceError, match="cannot sample -1"):
            lopsided().sample(generator(), -1)


NAMES = [f"p{at}" for at in range(8)]
SHAPES = {
    "divisor chain": [f"{one} % {two} == 0" for one, two in itertools.pairwise(NAMES)],
    "product": [f"{' * '.join(NAMES)} <= 1024"],
    "sum": [f"{' + '.join(NAMES)} == 132"],
    "sum and product": ["p0 + p1 + p2 + p3 <= 40 and p0 * p1 * p2 * p3 * p4 <= 512"],
    "difference": ["p0 + p1 - p2 == p3 - p4", "p5 <= p6 < p7"],
    "tiles": ["(p0 * p2 + p2 * p1) * 2 * p3 <= 4096", "p4 == 1 or p5 % p4 == 0"],
    "alternatives": ["p0 * p1 <= 64 or p0 + p7 == 40", "p2 if p3 > 4 else p4 <= 8"],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_common_shapes_in_a_million_million_combinations_are_counted_exactly(shape: str) -> None:
    space = Space({name: range(1, 33) for name in NAMES}, SHAPES[shape])
    assert space.exact_sampling
    drawn = space.sample(generator(), 500)
    assert len(set(drawn)) == 500
    assert all(config in space for config in drawn)


@pytest.mark.medium
@pytest.mark.parametrize("shape", SHAPES)
def test_the_count_of_common_shapes_agrees_with_enumeration(shape: str) -> None:
    spec = {name: [1, 16, 32] for name in NAMES}
    space = Space(spec, SHAPES[shape])
    choices = itertools.product(*spec.values())
    everything = (Config(dict(zip(spec, choice, strict=True))) for choice in choices)
    assert space.count == sum(config in space for config in everything)


class TestMetropolis:
    @pytest.fixture(autouse=True)
    def _nothing_can_be_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(counting, "COUNTING_EFFORT", counting.Effort(1, 1))
        monkeypatch.setattr(counting, "LISTING_EFFORT", counting.Effort(1, 1))
        monkeypatch.setattr(counting, "SMALL_COMPONENT", 0)

    @pytest.mark.medium
    def test_is_close_to_uniform(self) -> None:
        space = lopsided()
        assert not space.exact_sampling
        counts = Counter(space.sample(generator(), 10_000, replace=True))
        distance = sum(abs(counts[config] / 10_000 - 1 / 38) for config in space) / 2
        assert distance < 0.05

    def test_draws_distinct_configs(self) -> None:
        drawn = lopsided().sample(generator(), 20)
        assert len(set(drawn)) == 20

    def test_is_deterministic(self) -> None:
        assert lopsided().sample(generator(5), 9) == lopsided().sample(generator(5), 9)


@pytest.mark.medium
def test_a_space_that_only_a_predicate_knows_is_sampled_approximately() -> None:
    space = Space({name: range(32) for name in NAMES}, [lambda **all_: sum(all_.values()) % 7 == 0])
    assert not space.exact_sampling
    drawn = space.sample(generator(), 100)
    assert len(set(drawn)) == 100
    assert all(math.fsum(config.values()) % 7 == 0 for config in drawn)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_space_where_no_walk_arrives_says_so() -> None:
    space = Space({name: range(32) for name in NAMES}, [lambda **all_: False])
    with pytest.raises(SpaceError, match=r"no valid config found in \d+ random walks over p0, "):
        space.sample(generator(), 1)
