"""Who is ahead, who cannot be told from them, and what to use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from table_samples import a_large_table

from whet.replay.lab import Experiment, cases_of
from whet.replay.scores import RANDOM_TIMES, Score, Standing, contest, half_width, lead, recommended

NOISE = np.random.default_rng(0).normal(0, 0.1, 20)


def scored(search: str, repeats: Sequence[float]) -> Score:
    values = np.array(repeats)
    curve = np.zeros(3)
    half = float(half_width(values))
    mean = float(values.mean())
    return Score(search, "evaluations", mean, half, curve, curve, curve, (mean,), tuple(values))


def test_repeats_of_one_seed_are_compared_with_each_other() -> None:
    """A difference that is far smaller than what seeds differ by, but the same for each."""
    ahead, behind = scored("a", 0.52 + NOISE), scored("b", 0.5 + NOISE)
    assert ahead.half > 0.02
    assert lead(ahead, behind).sure
    assert lead(ahead, behind).by == pytest.approx(0.02)
    assert lead(behind, ahead).by == pytest.approx(-0.02)


def test_strategies_of_unequal_repeats_are_compared_by_their_means() -> None:
    often = scored("random", np.random.default_rng(1).normal(0, 0.1, 200))
    assert lead(scored("a", 0.5 + NOISE), often).sure
    assert not lead(scored("a", 0.01 + NOISE), often).sure


def test_one_repeat_settles_nothing() -> None:
    assert not lead(scored("a", [0.9]), scored("b", [0.1])).sure
    assert not lead(scored("a", [0.9]), scored("b", [0.1, 0.1])).sure


def test_those_that_cannot_be_told_from_the_best_are_level_with_it() -> None:
    other = np.random.default_rng(2).normal(0, 0.1, 20)
    standing = Standing.of([scored("c", NOISE), scored("b", 0.5 + other), scored("a", 0.5 + NOISE)])
    assert set(standing.level) == {"a", "b"}
    assert standing.lead_of("c").over == standing.best.search
    assert standing.lead_of("c").sure
    assert not standing.lead_of(standing.best.search).sure


def test_the_best_is_measured_against_whom_it_cannot_be_told_from() -> None:
    """Not against one that is nearer but surely behind."""
    wild = [0.1, 1.0] * 10
    standing = Standing.of([scored("a", 0.6 + NOISE), scored("b", 0.58 + NOISE), scored("c", wild)])
    assert standing.lead_of("a").over == "c"


@pytest.mark.medium
def test_among_equals_a_winner_is_hardly_ever_found() -> None:
    """Though the best of eleven is picked before it is compared."""
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(200):
        equals = [scored(str(at), rng.normal(0.5, 0.1, 20)) for at in range(11)]
        found += len(Standing.of(equals).level) == 1
    assert found <= 10


@pytest.mark.parametrize(
    ("evaluations", "time", "wanted"),
    [
        ({"gp": 0.9, "auto": 0.5}, {"gp": 0.9, "auto": 0.5}, "gp"),
        ({"gp": 0.51, "auto": 0.5}, {"gp": 0.51, "auto": 0.5}, "auto"),
        ({"gp": 0.9, "auto": 0.5}, {"gp": 0.51, "auto": 0.5}, "gp"),
        ({"gp": 0.9, "auto": 0.5}, {"gp": 0.5, "auto": 0.9}, None),
        ({"gp": 0.51, "tpe": 0.5}, {"gp": 0.51, "tpe": 0.5}, "gp"),
    ],
)
def test_what_to_use_is_level_with_the_best_over_both_axes(
    evaluations: dict[str, float], time: dict[str, float], wanted: str | None
) -> None:
    rng = np.random.default_rng(4)

    def standing(means: dict[str, float]) -> Standing:
        noise = {name: rng.normal(0, 0.1, 20) for name in means}
        return Standing.of(
            [scored(name, mean + noise[name] - noise[name].mean()) for name, mean in means.items()]
        )

    assert recommended([standing(evaluations), standing(time)]) == wanted


def test_every_stretch_of_an_experiment_has_its_share_of_everything() -> None:
    cases = tuple(cases_of("t", a_large_table(20, 2, 1, 5)))
    tasks = Experiment(cases, ("grid", "random"), 5, repeats=4).tasks
    assert len(set(tasks)) == len(tasks) == 16
    assert {task[:2] for task in tasks[:4]} == {task[:2] for task in tasks}


@pytest.mark.medium
def test_random_is_repeated_more_often_since_it_scatters_more() -> None:
    cases = cases_of("t", a_large_table(40, 2, 1, 5))
    found = contest(cases, ("grid", "random"), 20, 3)
    counts = {one.search: len(one.repeats) for one in found.standings["evaluations"].order}
    assert counts == {"grid": 3, "random": 3 * RANDOM_TIMES}
