"""The community's score, and what random search can promise by the formula and by trying."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from table_samples import a_large_table, at_ns, ok, one_key

from whet.core.status import Status
from whet.replay import Build, Course, Table, TableOutcome
from whet.replay.lab import (
    Case,
    Experiment,
    Replayed,
    cases_of,
    chance,
    draws_for,
    fastest,
    replay,
    share_of_repeats,
)
from whet.replay.scores import Array, Axis, Baseline, score, score_curves


def ladder(count: int) -> Table:
    """From the slowest config to the fastest, 1 ns apart and 100 ns at last; each takes a second
    to build."""
    return one_key(at_ns(*range(100 + count - 1, 99, -1)))


def case(count: int = 99) -> Case:
    return cases_of("t", ladder(count))[0]


def half_fail(count: int = 200, first_s: float = 1.0) -> Case:
    """Every second config fails, the others take from 100 ns to 10,000 times as much, the better
    ones late; all build in a second, but for the first."""
    outcomes = [
        ok((round(1e6 * 1e-4 ** (at / (count - 2))),) * 3)
        if at % 2 == 0
        else TableOutcome(Status.RUN_ERROR)
        for at in range(count)
    ]
    builds = (Build(Status.OK, first_s), *(Build(Status.OK, 1.0) for _ in outcomes[1:]))
    return cases_of("t", one_key(outcomes, builds=builds))[0]


def random_scores(case: Case, axis: Axis, evals: int = 60) -> Array:
    found = replay(Experiment((case,), ("random",), evals, repeats=300))
    return np.asarray(score_curves(found[0], Baseline(case, evals), axis).mean(axis=1))


def course(best: float, length: int = 50, each_s: float = 1.0) -> Course:
    evals = range(length)
    return Course((best,) * length, tuple(evals), 0.0, tuple(each_s * (1 + at) for at in evals))


def test_random_search_draws_among_the_others_after_the_first_config() -> None:
    """The second config is 102, 101 or 100 ns, and the fourth the one that was left."""
    random = Baseline(case(4), 1000)
    # Nothing counts for more than the median, 101.5.
    assert random.expected_ns.tolist() == pytest.approx(
        [101.5, (100 + 101 + 101.5) / 3, (100 + 100 + 101) / 3, 100]
    )


def test_it_ends_where_random_search_is_expected_to_be_near_the_optimum() -> None:
    """5 % of the way from 100 ns to the median, 149 ns, is at 102.45 ns; n of the 98 configs after
    the first have 99 / (n + 1) as their best rank, which is 3.45 after 27.7."""
    assert Baseline(case(99), 1000).evals == 1 + 28
    assert Baseline(case(99), 10).evals == 10  # where one may not simulate as far


def test_time_is_what_random_configs_cost_on_average() -> None:
    assert Baseline(case(), 1000).eval_s == pytest.approx(1.0, abs=1e-3)


@pytest.mark.medium
def test_finding_the_optimum_at_once_scores_one() -> None:
    found = Replayed(case(), "x", (course(100.0),))
    for axis in ("evaluations", "time"):
        assert (score_curves(found, Baseline(found.case, 50), axis) == 1.0).all()


def test_doing_as_random_search_does_scores_zero() -> None:
    random = Baseline(case(), 30)
    expected = tuple(random.expected_ns.tolist())
    found = Replayed(
        random.case, "x", (Course(expected, tuple(range(30)), 0.0, tuple(range(1, 31))),)
    )
    assert np.abs(score_curves(found, random, "evaluations")).max() < 1e-9


def test_finding_nothing_counts_as_the_median_config() -> None:
    random = Baseline(half_fail(), 30)
    never = score_curves(Replayed(random.case, "x", (course(np.inf),)), random, "evaluations")
    median = float(np.nanmedian(random.case.workload.medians))
    middle = score_curves(Replayed(random.case, "x", (course(median),)), random, "evaluations")
    assert (never == middle).all()


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["evaluations", "time"])
@pytest.mark.parametrize("first_s", [1.0, 20.0])
def test_random_scores_zero_where_half_of_the_configs_fail(axis: Axis, first_s: float) -> None:
    """However slow the slowest config, and however long the first one takes to build."""
    scores = random_scores(half_fail(first_s=first_s), axis)
    error = float(scores.std() / np.sqrt(len(scores)))
    assert error < 0.1
    assert abs(float(scores.mean())) < 3 * error + 0.02


@pytest.mark.medium
def test_slow_thinking_costs_score_over_time_only() -> None:
    random = Baseline(case(), 30)
    quick = Replayed(random.case, "x", (course(100.0),))
    slow = Replayed(random.case, "x", (course(100.0, each_s=10.0),))
    for found, expected in ((quick, True), (slow, False)):
        over_time = score([found], [random], "time").mean
        assert (over_time == 1.0) is expected
    assert score([slow], [random], "evaluations").mean == 1.0


@pytest.mark.slow
def test_random_search_scores_zero_within_its_interval() -> None:
    """The strategy sees no noise here, so nothing but chance is left."""
    cases = (case(300), case(200))
    found = replay(Experiment(cases, ("random",), 60, repeats=100))
    got = score(found, [Baseline(one, 60) for one in cases], "evaluations")
    assert 0 < got.half < 0.3
    assert abs(got.mean) < 2 * got.half
    assert len(got.tables) == 2
    assert np.mean(got.repeats) == pytest.approx(got.mean)


@pytest.mark.medium
def test_luck_that_tables_share_widens_the_interval() -> None:
    """The same repeats on two tables that are alike say no more than those on one of them."""
    one = case(300)
    found = replay(Experiment((one,), ("random",), 60, repeats=30))
    base = Baseline(one, 60)
    alone = score(found, [base], "evaluations")
    twice = score([*found, *found], [base, base], "evaluations")
    assert twice.half == pytest.approx(alone.half)


def test_one_repeat_has_no_interval() -> None:
    found = Replayed(case(), "x", (course(110.0),))
    got = score([found], [Baseline(found.case, 30)], "evaluations")
    assert np.isinf(got.half)
    assert np.isfinite(got.curve_low).all()


@pytest.mark.medium
@pytest.mark.parametrize("search", ["random", "coordinate"])
def test_what_comes_after_the_horizon_does_not_change_the_score(search: str) -> None:
    cases = tuple(cases_of("t", a_large_table(300, 1, 1, 5)))
    bases = [Baseline(one, 200) for one in cases]
    every = Experiment(cases, (search,), 200, repeats=3)
    whole = replay(every)
    short = replay(replace(every, horizons=tuple(one.horizon for one in bases)))
    assert len(short[0].courses[0].evaluations) < len(whole[0].courses[0].evaluations)
    assert score(short, bases, "evaluations").mean == score(whole, bases, "evaluations").mean
    # The strategies' own time is measured, hence not the same twice.
    assert score(short, bases, "time").mean == pytest.approx(
        score(whole, bases, "time").mean, abs=0.05
    )


@pytest.mark.medium
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_table_of_hardly_any_configs_has_finite_scores(count: int) -> None:
    cases = (case(count),)
    found = replay(Experiment(cases, ("random",), 10, repeats=3))
    for axis in ("evaluations", "time"):
        assert np.isfinite(score_curves(found[0], Baseline(cases[0], 10), axis)).all()


def test_what_was_timed_less_cleanly_than_the_optimum_is_nothing_to_start_from() -> None:
    table = one_key([*at_ns(50, 60, quality="contaminated"), *at_ns(200)])
    assert Baseline(cases_of("t", table)[0], 10).start_ns == 200


def test_thirty_random_configs_are_not_enough_for_a_fastest_twentieth() -> None:
    assert chance(0.05, 30) == pytest.approx(0.7854, abs=1e-4)
    assert chance(0.05, 58) < 0.95 < chance(0.05, 59)
    assert draws_for(0.05) == 59


def test_the_fastest_share_counts_configs_that_fail_and_has_none_of_them() -> None:
    failed = [TableOutcome(Status.RUN_ERROR)] * 7
    case = cases_of("t", one_key([*at_ns(500, 100, 300), *failed]))[0]
    assert fastest(case, 0.2) == {1, 2}
    assert fastest(case, 0.01) == {1}
    assert fastest(case, 0.9) == {0, 1, 2}


@pytest.mark.slow
@pytest.mark.parametrize("draws", [30, 59])
def test_random_search_does_as_the_formula_says(draws: int) -> None:
    """But for its first config, which is the author's, and for never drawing one twice."""
    case = cases_of("t", a_large_table(600, 1, 1, 5))[0]
    found = replay(Experiment((case,), ("random",), draws, repeats=300))[0]
    assert share_of_repeats(found, fastest(case, 0.05), draws) == pytest.approx(
        chance(0.05, draws), abs=0.08
    )
