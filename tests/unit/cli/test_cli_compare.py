"""What `whet compare-searches` draws and concludes, from made-up scores."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping

import numpy as np
import pytest

from whet.cli.commands.lab_searches import about_random, chart, comparison_lines, verdict
from whet.replay.scores import AXES, Axis, Score, Standing, half_width


def scored(search: str, axis: Axis, mean: float, spread: float, repeats: int) -> Score:
    """Exactly of that mean, and scattered by `spread` in another way for each strategy."""
    noise = np.random.default_rng(sum(map(ord, search))).normal(0, 1, repeats)
    values = mean + spread * (noise - noise.mean())
    curve = np.zeros(3)
    tables = (mean - 0.1, mean + 0.1)
    half = float(half_width(values))
    return Score(search, axis, mean, half, curve, curve, curve, tables, tuple(values))


def standings(
    evaluations: Mapping[str, float],
    time: Mapping[str, float] | None = None,
    spread: float = 0.05,
    repeats: int = 20,
) -> dict[Axis, Standing]:
    means = {"evaluations": evaluations, "time": evaluations if time is None else time}
    return {
        axis: Standing.of(
            [scored(name, axis, mean, spread, repeats) for name, mean in means[axis].items()]
        )
        for axis in AXES
    }


def test_a_clear_winner_is_recommended_with_its_lead() -> None:
    said = verdict(standings({"auto": 0.7, "gp": 0.5, "random": 0.0}), 2)
    assert said.startswith(
        "Use auto. Over evaluations it was ahead of the next best (gp) by 0.20 ±"
    )
    assert "too close to call" not in said
    assert "2 workloads and 20 repeats" in said


def test_a_lead_within_the_noise_is_too_little() -> None:
    said = verdict(standings({"auto": 0.71, "gp": 0.70, "random": 0.0}), 1)
    assert said.startswith("Use auto, the default: nothing proved better.")
    assert "next best (gp) by 0.01 ±" in said
    assert "too close to call" in said
    assert "this workload" in said
    assert "--repeats 80" in said


def test_the_default_is_kept_where_another_is_ahead_by_too_little() -> None:
    said = verdict(standings({"gp": 0.71, "auto": 0.70, "random": 0.0}), 2)
    assert "Use auto" in said
    assert "behind" in said
    assert "(gp) by 0.01 ±" in said


def test_the_default_is_given_up_where_another_is_clearly_ahead() -> None:
    assert verdict(standings({"gp": 0.9, "auto": 0.5}), 2).startswith("Use gp. ")


def test_equal_scores_are_level() -> None:
    said = verdict(standings({"auto": 0.5, "gp": 0.5}), 2)
    assert "level with gp" in said


def test_axes_that_disagree_are_recommended_apart() -> None:
    said = verdict(standings({"gp": 0.9, "tpe": 0.5}, {"gp": 0.5, "tpe": 0.9}), 2)
    assert "evaluations use gp" in said
    assert "(tpe) by 0.40" in said
    assert "time use tpe" in said


def test_what_is_no_better_than_random_search_is_said_to_be_so() -> None:
    said = verdict(standings({"auto": 0.01, "gp": 0.0}, spread=0.2), 2)
    assert "not shown" in said


@pytest.mark.parametrize(
    ("mean", "said"),
    [
        (0.5, "it was better than random search"),
        (-0.5, "it was worse than random search"),
        (0.0, "it was not shown to be better than random search"),
    ],
)
def test_a_strategy_alone_is_compared_with_random_search(mean: float, said: str) -> None:
    assert said in verdict(standings({"auto": mean}), 2)


def test_one_repeat_says_nothing_of_how_sure() -> None:
    said = verdict(standings({"auto": 0.9, "gp": 0.1}, repeats=1), 2)
    assert "one repeat" in said
    assert "Use" not in said


@pytest.mark.parametrize(
    ("mean", "said"),
    [(-0.02, "as calculated"), (-0.5, "less than calculated"), (0.5, "more than calculated")],
)
def test_the_score_of_random_is_held_against_what_was_calculated(mean: float, said: str) -> None:
    assert said in about_random(scored("random", "evaluations", mean, 0.3, 200))


def test_each_strategy_has_a_line_of_the_chart_where_its_score_lies() -> None:
    lines = chart(standings({"auto": 0.9, "random": 0.0, "grid": -0.5}), 80)
    assert max(map(len, lines)) <= 80
    dots = [line.index("●") for line in lines[1:4]]
    assert [line.split()[0] for line in lines[1:4]] == ["auto", "random", "grid"]
    assert dots == sorted(dots, reverse=True)
    assert dots[1] == lines[0].index("0 random")


def test_a_score_beyond_the_chart_is_marked() -> None:
    lines = chart(standings({"auto": 0.9, "grid": -0.5}, {"auto": 0.9, "grid": -3.9}), 80)
    assert "◂" in lines[2]
    assert "◂ less" in lines[-1]


def test_the_chart_needs_no_more_than_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    lines = chart(standings({"auto": 0.9, "gp": 0.5}), 60)
    assert all(line.isascii() for line in lines)


def test_a_column_that_is_the_same_in_every_row_goes_into_the_caption() -> None:
    lines = comparison_lines(
        standings({"auto": 0.9, "gp": 0.5}), "t", ["M=64", "M=128"], {"auto": 1.0, "gp": 2.0}, 80
    )
    assert "M=64 in every" in " ".join(lines)
    assert sum("M=64" in line for line in lines) == 1


def test_negative_scores_are_not_cut() -> None:
    found = standings({"evolve-model": -0.79, "auto": -0.5})
    lines = comparison_lines(found, "t", ["t"], {"evolve-model": 12.3, "auto": 2.0}, 60)
    row = next(line for line in lines if line.startswith("evolve-model"))
    assert "-0.79 ± 0.0" in row
    assert row.endswith("12.3")
