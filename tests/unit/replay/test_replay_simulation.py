"""Tuning on a table: what an evaluation answers, what it costs, and what is believed of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from table_samples import a_large_table, a_table, ok, one_key

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.space import Ordered, Space
from whet.core.status import Status
from whet.core.trial import Trial
from whet.replay import Build, Course, Table, TableOutcome, replay_space, simulate
from whet.replay.lab import Case, Experiment, cases_of, replay
from whet.replay.table import Declared
from whet.search import make_strategy


class Scripted:
    """Asks for what it was given, and remembers what it is told."""

    name = "scripted"

    def __init__(self, configs: Sequence[Config]) -> None:
        self.left = list(configs)
        self.told: list[Trial] = []

    def ask(self, n: int) -> list[Config]:
        asked, self.left = self.left[:n], self.left[n:]
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        self.told += trials


def three(**changes: object) -> Table:
    """100 ns, a failed build, 50 ns."""
    outcomes = [
        ok((100,) * 4, seconds=FrozenMap({"warmup": 0.25})),
        TableOutcome(Status.BUILD_ERROR, error="no"),
        ok((50,) * 4, first_ns=500_000_000),
    ]
    fields = {
        "configs": (Config(B=1), Config(B=2), Config(B=4)),
        "builds": (Build(Status.OK, 1.0), Build(Status.BUILD_ERROR, 3.0), Build(Status.OK)),
        **changes,
    }
    return one_key(outcomes, key={"n": 1}, **fields)


def tuned(
    configs: Sequence[Config] | None = None, evals: int = 3, table: Table | None = None, **more: Any
) -> Course:
    """Of those configs of the table, in their order."""
    table = table or three()
    asked = Scripted(table.configs if configs is None else configs)
    return simulate(table, table.workloads[0], asked, evals, **{"seed": 0, **more})


def test_the_best_so_far_is_the_true_median_of_the_config_believed_best() -> None:
    course = tuned()
    assert course.best_ns == (100.0, 100.0, 50.0)
    assert course.evaluations == (0, 1, 2)


def test_a_lucky_sample_is_believed_and_scored_by_the_true_median() -> None:
    table = one_key([ok((80,) * 3), ok((70,) * 3, (200,) * 3, (200,) * 3)], None)
    found = {tuned(table=table, evals=2, seed=seed).best_ns[-1] for seed in range(20)}
    assert found == {80.0, 200.0}


def test_a_failed_config_costs_an_evaluation_and_its_build() -> None:
    course = tuned([Config(B=2)], 5)
    assert course.best_ns == (math.inf,)
    assert course.seconds[0] == pytest.approx(3.0, abs=0.01)
    assert course.fraction(1, 50.0) == 0.0


def test_time_charges_build_warm_up_and_samples() -> None:
    assert tuned([Config(B=1)]).seconds[0] == pytest.approx(1.25, abs=0.01)


def test_an_untimed_build_costs_the_median_of_the_others() -> None:
    assert tuned([Config(B=4)]).seconds[0] == pytest.approx(2.0 + 0.5, abs=0.01)


def test_a_batch_is_built_at_once_or_as_evenly_spread() -> None:
    assert tuned(batch=3).seconds[-1] == pytest.approx(3.0 + 0.25 + 0.5, abs=0.01)
    even = tuned(batch=3, even_builds=True).seconds[-1]
    assert even == pytest.approx((1 + 3 + 2) / 3 + 0.25 + 0.5, abs=0.01)


def test_a_config_the_table_does_not_have_is_a_failed_evaluation() -> None:
    table = three()
    strategy = Scripted([Config(B=99)])
    course = simulate(table, table.workloads[0], strategy, 1, seed=0)
    assert course.evaluations == (-1,)
    assert strategy.told[0].status is Status.CONSTRAINT


def test_the_strategy_is_told_samples_of_one_visit() -> None:
    table = one_key([ok((10, 11, 12, 13), (20, 21, 22, 23))])
    for seed in range(10):
        strategy = Scripted(table.configs)
        simulate(table, table.workloads[0], strategy, 1, seed=seed)
        timing = strategy.told[0].timing
        assert timing is not None
        assert len(set(timing.samples)) == 3
        assert max(timing.samples) < 20 or min(timing.samples) >= 20


def test_all_strategies_see_the_same_noise_of_a_config() -> None:
    table = a_large_table(40, 1, 2, 5)
    forwards, backwards = Scripted(table.configs), Scripted(table.configs[::-1])
    for strategy in (forwards, backwards):
        simulate(table, table.workloads[0], strategy, 40, seed=3)
    medians = [{one.config: one.median_ns for one in s.told} for s in (forwards, backwards)]
    assert medians[0] == medians[1]


def test_the_same_seed_gives_the_same_course() -> None:
    table = a_large_table(60, 1, 2, 5)
    workload = table.workloads[0]
    space = replay_space(table, workload)
    courses = [
        simulate(table, workload, make_strategy("random", space, 1), 30, seed=1) for _ in range(2)
    ]
    assert courses[0].best_ns == courses[1].best_ns
    assert courses[0].evaluations == courses[1].evaluations


def test_what_was_timed_uncleanly_is_never_believed_best() -> None:
    table = a_table()
    assert table.workloads[0].quality(1) == "contaminated"
    assert tuned(table=table).best_ns[-1] == table.workloads[0].median_ns(0)


def test_a_build_that_failed_has_failed_for_every_workload() -> None:
    table = a_table()
    strategy = Scripted([table.configs[2]])
    simulate(table, table.workloads[1], strategy, 1, seed=0)
    assert strategy.told[0].status is Status.RESOURCES


def test_the_space_is_the_declared_one_where_the_table_has_all_of_it_and_else_a_list() -> None:
    declared = Declared((Ordered("B", (1, 2, 4)),))
    table = three(declared=declared)
    assert replay_space(table, table.workloads[0]).id == declared.space().id
    table = three(declared=Declared((Ordered("B", (1, 2, 4, 8)),)))
    assert list(replay_space(table, table.workloads[0])) == list(table.configs)


@pytest.mark.medium
def test_many_tunings_are_the_same_in_one_process_and_in_two() -> None:
    table = a_large_table(50, 2, 1, 5)
    experiment = Experiment(tuple(cases_of("t", table)), ("random", "grid"), 10, repeats=3)
    alone, shared = replay(experiment), replay(experiment, jobs=2)
    assert [one.search for one in alone] == ["random", "grid", "random", "grid"]
    assert [[c.best_ns for c in one.courses] for one in alone] == [
        [c.best_ns for c in one.courses] for one in shared
    ]


def test_a_sample_of_workloads_is_evenly_spread() -> None:
    table = a_large_table(5, 9, 1, 3)
    picked = [case.workload.key["M"] for case in cases_of("t", table, 3)]
    assert picked == [64, 64 * 5, 64 * 9]


def test_a_workload_is_never_its_own_source() -> None:
    table = a_large_table(5, 3, 1, 3)
    cases = cases_of("t", table)
    case = cases[1].with_sources(cases)
    assert [one.workload.key["M"] for one in case.sources] == [64, 192]


def test_what_tunes_other_parameters_is_no_source() -> None:
    table = a_large_table(5, 1, 1, 3)
    other = Case("other", three(), three().workloads[0])
    assert cases_of("t", table)[0].with_sources([other]).sources == ()


def test_the_trials_of_a_source_have_every_known_outcome() -> None:
    table = three()
    trials = Case("t", table, table.workloads[0]).trials
    assert [one.status for one in trials] == [Status.OK, Status.BUILD_ERROR, Status.OK]
    assert [one.median_ns for one in trials] == [100.0, None, 50.0]


def test_auto_searches_a_small_table_too_as_it_would_within_a_budget() -> None:
    (case,) = cases_of("t", a_large_table(200, 1, 1, 3))
    searching = case.strategy("auto", 3)
    assert searching.ask(8) == make_strategy("auto", case.space, 3, whole=False).ask(8)
    assert case.strategy("auto", 3).ask(8) != make_strategy("random", case.space, 3).ask(8)


def test_a_space_without_configs_ends_at_once() -> None:
    table = three()
    course = simulate(table, table.workloads[0], make_strategy("grid", Space([])), 5, seed=0)
    assert course == replace(course, best_ns=(), evaluations=(), seconds=())
    assert course.fraction(5, 1.0) == 0.0
