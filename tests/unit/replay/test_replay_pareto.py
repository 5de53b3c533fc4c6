"""The paper's simulation on tables whose answers can be worked out by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from table_samples import a_large_table, a_table

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.replay import Build, Table, TableOutcome, TableWorkload
from whet.replay.figure import Figure, Series, html_page, log_ticks, svg, ticks
from whet.replay.frontier import Frontier, compare, study
from whet.replay.pareto import Cloud, Draws, Paper, Repetition, Track, racing_clouds

MS = 1_000_000


def timed(*visits: tuple[int, ...], build: float = 1.0) -> Table:
    """One config for each tuple of execution times in ms."""
    return a_table(
        configs=tuple(Config(B=at) for at in range(len(visits))),
        builds=tuple(Build(Status.OK, build) for _ in visits),
        workloads=(
            TableWorkload.of(
                {},
                [
                    TableOutcome(
                        Status.OK,
                        (tuple(ms * MS for ms in one),),
                        seconds=FrozenMap({"warmup": 0.0}),
                    )
                    for one in visits
                ],
            ),
        ),
    )


def runs_of(table: Table, **changes: Any) -> tuple[Paper, list[Cloud]]:
    plan = replace(Draws(draws=4, runs=2, configs=(1, 1)), **changes)
    paper = Paper.of(table, list(table.workloads), plan)
    return paper, paper.clouds()


@pytest.mark.parametrize(
    ("wanted_ms", "executions", "spent_ms"),
    [(2, 1, 3), (3, 2, 8), (7.9, 2, 8), (8, 3, 11), (18.9, 5, 19), (19.5, 6, 24)],
)
def test_a_config_is_executed_until_the_time_is_exceeded(
    wanted_ms: float, executions: int, spent_ms: float
) -> None:
    known = Repetition.of(table := timed((3, 5)), list(table.workloads))
    zero = np.array([0])
    got = known.executions(zero, zero, np.array([wanted_ms / 1e3]))
    assert got.tolist() == [executions]
    assert known.spent_s(zero, zero, got)[0] == pytest.approx(spent_ms / 1e3)


def test_the_total_is_repetition_and_compilation_and_overhead() -> None:
    _, (sequential, *_) = runs_of(timed((7, 7)), exec_ms=(20.0, 20.0))
    assert sequential.seconds == pytest.approx(np.full((4, 2), 1.0 + 0.021))


def test_an_unknown_overhead_is_a_constant_for_the_input() -> None:
    table = timed((7,), (7,))
    silent = replace(table.workloads[0], spent=FrozenMap())
    table = replace(table, workloads=(silent,))
    paper, (sequential, *_) = runs_of(table, exec_ms=(6.0, 6.0), configs=(2, 2))
    assert not paper.overhead_known
    assert sequential.seconds == pytest.approx(np.full((4, 2), 2.0 + 0.014 + 0.1))


def test_compile_times_are_divided_by_the_effective_factor() -> None:
    table = timed(*[(7,)] * 20)
    _, (sequential, parallel, *_) = runs_of(table, configs=(20, 20), exec_ms=(6.0, 6.0))
    repeated = 20 * 0.007
    assert sequential.seconds == pytest.approx(np.full((4, 2), 20 + repeated))
    assert parallel.seconds == pytest.approx(np.full((4, 2), 20 / (20 / 2) + repeated))


def test_the_fastest_explored_config_is_found() -> None:
    _, (sequential, *_) = runs_of(timed((8, 8), (2, 2), (4, 4)), configs=(3, 3))
    assert (sequential.fraction == 1.0).all()


def test_of_one_config_the_fraction_is_its_own() -> None:
    _, (sequential, *_) = runs_of(timed((8, 8), (2, 2)), draws=40)
    assert set(sequential.fraction.ravel()) == {0.25, 1.0}


def test_early_stopping_ends_a_slow_config_after_its_first_executions() -> None:
    table = timed((1, 1), (4, 4))
    changes: dict[str, Any] = {"exec_ms": (100.0, 100.0), "configs": (2, 2), "stop_num": (3, 3)}
    paper, (_, _, stopped, _) = runs_of(table, draws=20, **changes)
    slow_first = paper.chosen[:, 0].reshape(20, 2) == 1
    assert stopped.seconds[slow_first] == pytest.approx(2 + 0.104 + 0.101)
    assert stopped.seconds[~slow_first] == pytest.approx(2 + 0.101 + 3 * 0.004)


def test_early_stopping_spares_what_is_within_the_threshold() -> None:
    table = timed((10, 10), (11, 11))
    changes: dict[str, Any] = {"exec_ms": (100.0, 100.0), "configs": (2, 2), "stop_num": (3, 3)}
    _, (base, _, stopped, _) = runs_of(table, stop_threshold=(1.1, 1.1), **changes)
    assert stopped.seconds == pytest.approx(base.seconds)


def test_no_more_configs_are_explored_than_work() -> None:
    paper, _ = runs_of(timed((8,), (2,)), configs=(1, 80), draws=30)
    assert paper.configs.max() == 2


def test_every_draw_is_of_one_of_several_workloads() -> None:
    table = a_large_table(20, 4, 1, 5)
    paper = Paper.of(table, list(table.workloads), Draws(draws=60, runs=2))
    assert set(paper.workload.tolist()) == {0, 1, 2, 3}


def test_a_frontier_has_no_point_that_another_beats() -> None:
    seconds = np.array([[1.0], [2.0], [3.0], [2.5], [4.0]])
    fraction = np.array([[0.5], [0.8], [0.7], [0.9], [0.9]])
    frontier = Frontier.of(Cloud("x", seconds, fraction, np.arange(5)))
    assert frontier.rows.tolist() == [0, 1, 3]
    assert frontier.seconds_to(0.85) == 2.5
    assert frontier.seconds_to(0.95) is None


@pytest.mark.medium
def test_the_same_tunings_in_half_the_time_move_the_frontier() -> None:
    rng = np.random.default_rng(0)
    seconds = np.sort(rng.uniform(1, 50, 200))[:, None] * rng.uniform(0.9, 1.1, (200, 20))
    fraction = 1 - 1 / (1 + seconds)
    base = Cloud("sequential", seconds, fraction, np.arange(200))
    halved = compare(replace(base, name="x", seconds=seconds / 2), base, "halving")
    assert halved.moves
    assert halved.verdict.startswith("halving moves the frontier: area +0.")
    back = compare(base, replace(base, name="x", seconds=seconds / 2), "doubling")
    assert "frontier back" in back.verdict


@pytest.mark.medium
def test_the_same_tunings_again_do_not_move_the_frontier() -> None:
    rng = np.random.default_rng(0)
    base = Cloud("sequential", rng.uniform(1, 9, (50, 10)), rng.random((50, 10)), np.arange(50))
    again = compare(base, base, "nothing")
    assert not again.moves
    assert "hardly moves" in again.verdict


def test_a_race_finds_the_best_and_takes_fewer_samples_than_time_allows() -> None:
    table = a_large_table(30, 1, 2, 5)
    track = Track(table, table.workloads[0])
    winner, seconds = track.race(track.works, random.Random(0))
    assert track.best_ns / track.median_ns[winner] > 0.97
    assert 0 < seconds < 30 * 0.1


def test_racing_is_simulated_on_the_same_runs() -> None:
    table = a_large_table(30, 1, 2, 5)
    workloads = list(table.workloads)
    paper = Paper.of(table, workloads, Draws(draws=10, runs=4, configs=(1, 20)))
    sequential = paper.clouds()[0]
    raced, _ = racing_clouds(table, workloads, paper, 5)
    assert raced.configs.tolist() == paper.configs[:5].tolist()
    assert raced.fraction == pytest.approx(sequential.fraction[:5], abs=0.05)


@pytest.mark.medium
def test_a_study_answers_for_every_variant() -> None:
    table = a_large_table(40, 2, 2, 5)
    found = study(table, table.workloads[:1], Draws(draws=20, runs=4, configs=(1, 20)), ("random",))
    named = [(one.name, one.against) for one in found.comparisons[:5]]
    parallel = "parallel compilation (16×)"
    assert named == [
        ("parallel compilation", "sequential"),
        ("early stopping", "sequential"),
        ("early stopping", parallel),
        ("racing", "sequential"),
        ("racing", parallel),
    ]
    assert found.frontiers["random"].fraction[-1] > found.frontiers["random"].fraction[0]


def test_a_figure_is_well_formed_and_names_its_points() -> None:
    series = Series("a < b", (1, 10, 100), (0, 0.5, 1), titles=("p", "q & r", ""), steps=True)
    band = Series("band", (1, 100), (0.2, 0.4), (0.1, 0.3), (0.3, 0.5))
    figure = Figure("title", "x", "y", (series, band), log_x=True)
    root = ElementTree.fromstring(svg(figure))
    titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["p", "q & r"]
    page = html_page(figure)
    assert "<svg" in page
    assert "src=" not in page


def test_ticks_are_round_numbers_within_the_range() -> None:
    assert ticks(0, 1, 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert log_ticks(0.8, 60) == pytest.approx([1, 2, 5, 10, 20, 50])
