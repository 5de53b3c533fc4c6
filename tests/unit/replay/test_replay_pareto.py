"""The simulation of the paper on tables that can be worked out by hand, and what is said of it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from table_samples import a_large_table, ok, one_key

from whet.core.frozen import FrozenMap
from whet.replay import Table
from whet.replay.figure import Figure, Series, html_page, log_ticks, svg, ticks
from whet.replay.frontier import Comparison, Frontier, compare, study
from whet.replay.pareto import Cloud, Draws, Paper, Repetition, Track, racing_clouds

MS = 1_000_000


def timed(*visits: tuple[int, ...], build: float = 1.0) -> Table:
    """One config for each tuple of execution times in ms."""
    warm = FrozenMap({"warmup": 0.0})
    return one_key([ok([ms * MS for ms in one], seconds=warm) for one in visits], build)


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


STOPPING: dict[str, Any] = {"exec_ms": (100.0, 100.0), "configs": (2, 2), "stop_num": (3, 3)}


def test_early_stopping_ends_a_slow_config_after_its_first_executions() -> None:
    paper, (_, _, stopped, _) = runs_of(timed((1, 1), (4, 4)), draws=20, **STOPPING)
    slow_first = paper.chosen[:, 0].reshape(20, 2) == 1
    assert stopped.seconds[slow_first] == pytest.approx(2 + 0.104 + 0.101)
    assert stopped.seconds[~slow_first] == pytest.approx(2 + 0.101 + 3 * 0.004)


def test_early_stopping_spares_what_is_within_the_threshold() -> None:
    table = timed((10, 10), (11, 11))
    _, (base, _, stopped, _) = runs_of(table, stop_threshold=(1.1, 1.1), **STOPPING)
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
def test_only_other_times_or_fractions_move_the_frontier() -> None:
    base = tunings(1.0, 0, noise=0.0)
    half = replace(base, name="x", seconds=base.seconds / 2)
    assert compare(half, base, "halving").verdict.startswith("halving moves the frontier: area +0.")
    assert "frontier back" in compare(base, half, "doubling").verdict
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


MOVED = Comparison("auto", "sequential", 0.07, 0.04, 0.1, 20.0, 10.0, (1.5, 2.7))


def test_ahead_in_both_is_said_without_a_but() -> None:
    said = MOVED.verdict
    assert "area +0.070 (95 % interval +0.040 to +0.100); " in said
    assert "2.00× sooner (1.50 to 2.70): after 10 s instead of 20 s" in said
    assert "but" not in said


@pytest.mark.parametrize(("after", "sooner"), [(20.4, (0.9, 1.1)), (19.6, (0.9, 1.2))])
def test_a_time_within_the_noise_is_no_difference(
    after: float, sooner: tuple[float, float]
) -> None:
    said = replace(MOVED, after=after, sooner=sooner).verdict
    assert "but no clear difference" in said
    assert "sooner" not in said
    assert "instead of" not in said


def test_later_is_called_later() -> None:
    said = replace(MOVED, after=40.0, sooner=(0.4, 0.6)).verdict
    assert "auto moves the frontier:" in said
    assert "; but " in said
    assert "2.00× later (1.67 to 2.50): after 40 s" in said


def test_a_frontier_that_goes_back_is_said_to() -> None:
    back = replace(MOVED, gain=-0.07, low=-0.1, high=-0.04, after=40.0, sooner=(0.4, 0.6))
    assert back.verdict.startswith("auto moves the frontier back: area -0.070")
    assert "2.00× later" in back.verdict
    assert "but" not in back.verdict


@pytest.mark.parametrize("against", ["sequential", "parallel compilation (16×)"])
def test_a_gain_within_the_noise_cannot_be_told_from_none(against: str) -> None:
    still = replace(MOVED, against=against, gain=0.02, low=-0.01, high=0.05)
    assert still.verdict.startswith(f"auto cannot be told apart from {against}: area +0.020")
    assert "; but " in still.verdict
    assert "2.00× sooner" in still.verdict


def test_a_gain_too_small_to_matter_is_called_small() -> None:
    for gain, low, high in ((0.005, 0.002, 0.008), (0.001, -0.006, 0.009)):
        assert "hardly moves" in replace(MOVED, gain=gain, low=low, high=high).verdict


@pytest.mark.parametrize("gain", [0.009, 0.011])
def test_what_is_said_does_not_turn_with_the_estimate_within_its_interval(gain: float) -> None:
    said = replace(MOVED, gain=gain, low=0.004, high=0.016).verdict
    assert said.startswith("auto moves the frontier, perhaps by too little to matter: area")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (None, None, "; neither reaches 95 % of the optimum"),
        (20.0, None, "; it never reaches 95 % of the optimum, which takes 20 s without it"),
        (None, 10.0, "; it reaches 95 % of the optimum after 10 s, and never without it"),
    ],
)
def test_what_is_not_reached_is_said_not_to_be(
    before: float | None, after: float | None, said: str
) -> None:
    assert replace(MOVED, before=before, after=after, sooner=None).verdict.endswith(said)


def test_what_only_some_runs_reach_is_too_uncertain_to_compare() -> None:
    assert "too uncertain" in replace(MOVED, sooner=None).verdict


def tunings(factor: float, seed: int, noise: float = 0.01) -> Cloud:
    rng = np.random.default_rng(seed)
    seconds = np.sort(rng.uniform(1, 50, 200))[:, None] * rng.uniform(0.9, 1.1, (200, 20))
    fraction = 1 - 1 / (1 + seconds) + rng.normal(0, noise, seconds.shape)
    return Cloud("sequential", seconds * factor, fraction, np.arange(200))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("factor", "said"),
    [(0.5, "sooner"), (2.0, "later"), (1.0, "no clear difference")],
)
def test_the_interval_of_the_time_is_that_of_the_runs(factor: float, said: str) -> None:
    found = compare(tunings(factor, 1), tunings(1.0, 2), "it")
    assert said in found.verdict
    assert found.sooner is not None
    low, high = found.sooner
    assert low < 1 / factor < high
