"""What `whet lab searches` draws and concludes, from made-up scores."""

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


@pytest.mark.parametrize(
    ("found", "parts"),
    [
        pytest.param(
            standings({"auto": 0.7, "gp": 0.5, "random": 0.0}),
            (
                "Use auto. Over evaluations it was ahead of the next best (gp) by 0.20 ±",
                "2 workloads and 20 repeats",
            ),
            id="a clear winner, with its lead",
        ),
        pytest.param(
            standings({"auto": 0.71, "gp": 0.70, "random": 0.0}),
            (
                "Use auto, the default: nothing proved better.",
                "next best (gp) by 0.01 ±",
                "too close to call",
                "--repeats 80",
            ),
            id="a lead within the noise",
        ),
        pytest.param(
            standings({"gp": 0.71, "auto": 0.70, "random": 0.0}),
            ("Use auto", "behind", "(gp) by 0.01 ±"),
            id="the default is kept where another is ahead by too little",
        ),
        pytest.param(
            standings({"gp": 0.9, "auto": 0.5}), ("Use gp. ",), id="and given up where clearly"
        ),
        pytest.param(standings({"auto": 0.5, "gp": 0.5}), ("level with gp",), id="equal scores"),
        pytest.param(
            standings({"gp": 0.9, "tpe": 0.5}, {"gp": 0.5, "tpe": 0.9}),
            ("evaluations use gp", "(tpe) by 0.40", "time use tpe"),
            id="axes that disagree",
        ),
        pytest.param(
            standings({"auto": 0.01, "gp": 0.0}, spread=0.2),
            ("not shown",),
            id="no better than random search",
        ),
    ],
)
def test_what_follows_goes_by_the_numbers(
    found: Mapping[Axis, Standing], parts: tuple[str, ...]
) -> None:
    said = verdict(found, 2)
    assert [part for part in parts if part not in said] == []
    assert ("too close to call" in said) == ("0.01" in said or "not shown" in said)
    assert "this workload" in verdict(found, 1)


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
