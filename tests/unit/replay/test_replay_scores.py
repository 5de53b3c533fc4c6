"""The community's score: random search is 0, the optimum is 1."""

from __future__ import annotations

import numpy as np
import pytest
from table_samples import a_large_table, a_table

from whet.core.config import Config
from whet.core.status import Status
from whet.replay import Build, Course, Outcome, Table, TableWorkload
from whet.replay.lab import Case, Experiment, Replayed, cases_of, replay
from whet.replay.scores import Baseline, score, score_curves


def ladder(count: int) -> Table:
    """Config i takes 100 + i ns, and a second to build."""
    return a_table(
        configs=tuple(Config(B=at) for at in range(count)),
        builds=tuple(Build(Status.OK, 1.0) for _ in range(count)),
        workloads=(
            TableWorkload.of({}, [Outcome(Status.OK, ((100 + at,) * 3,)) for at in range(count)]),
        ),
    )


def case(count: int = 99) -> Case:
    return cases_of("t", ladder(count))[0]


def course(best: float, length: int = 50) -> Course:
    evals = range(length)
    return Course((best,) * length, tuple(evals), 0.0, tuple(1.0 + at for at in evals))


def test_the_best_of_n_random_configs_has_the_expected_rank() -> None:
    random = Baseline(case(99), 1000)
    assert random.ns(np.array([1.0, 9.0, 99.0])).tolist() == [149.0, 109.0, 100.0]


def test_it_ends_where_random_search_is_expected_to_be_near_the_optimum() -> None:
    """Within 5 % of the way to the median, 149 ns, there are three of the 99 configs."""
    assert Baseline(case(99), 1000).evals == 33


def test_it_ends_earlier_where_one_may_not_simulate_as_far() -> None:
    assert Baseline(case(99), 10).evals == 10


def test_time_is_what_random_configs_cost_on_average() -> None:
    assert Baseline(case(), 1000).eval_s == pytest.approx(1.0, abs=1e-3)


def test_finding_the_optimum_at_once_scores_one() -> None:
    found = Replayed(case(), "x", (course(100.0),))
    for axis in ("evaluations", "time"):
        assert (score_curves(found, Baseline(found.case, 50), axis) == 1.0).all()


def test_doing_as_random_search_does_scores_zero() -> None:
    random = Baseline(case(), 30)
    expected = tuple(random.ns(np.arange(1.0, 31)).tolist())
    found = Replayed(
        random.case, "x", (Course(expected, tuple(range(30)), 0.0, tuple(range(1, 31))),)
    )
    assert np.abs(score_curves(found, random, "evaluations")).max() < 1e-9


def test_finding_nothing_counts_as_the_slowest_config() -> None:
    random = Baseline(case(), 30)
    never = score_curves(Replayed(random.case, "x", (course(np.inf),)), random, "evaluations")
    slowest = score_curves(Replayed(random.case, "x", (course(198.0),)), random, "evaluations")
    assert (never == slowest).all()


def test_slow_thinking_costs_score_over_time_only() -> None:
    random = Baseline(case(), 30)
    quick = Replayed(random.case, "x", (course(100.0),))
    slow = Replayed(
        random.case,
        "x",
        (Course((100.0,) * 50, tuple(range(50)), 0.0, tuple(10.0 * (at + 1) for at in range(50))),),
    )
    for found, expected in ((quick, True), (slow, False)):
        over_time = score([found], [random], "time").mean
        assert (over_time == 1.0) is expected
    assert score([slow], [random], "evaluations").mean == 1.0


def test_random_search_scores_about_zero_and_its_band_says_so() -> None:
    table = a_large_table(300, 3, 1, 5)
    cases = tuple(cases_of("t", table))
    found = replay(Experiment(cases, ("random",), 60, repeats=30))
    got = score(found, [Baseline(one, 60) for one in cases], "evaluations")
    assert got.low < got.mean < got.high
    assert abs(got.mean) < 0.25
    assert len(got.tables) == 3
