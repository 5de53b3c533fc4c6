"""What docs/searching.md says of random search and of commands is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from whet.cli.app import root
from whet.replay.lab import chance, draws_for
from whet.search import STRATEGIES

PAGE = (Path(__file__).parents[3] / "docs" / "searching.md").read_text()


def test_its_chances_are_those_of_the_formula() -> None:
    draws, chances = (
        [cell.strip(" %") for cell in re.findall(rf"^\| {row} \|(.*)\|$", PAGE, re.M)[0].split("|")]
        for row in ("n", "chance")
    )
    assert len(draws) > 4
    assert [f"{100 * chance(0.05, int(n)):.1f}" for n in draws] == chances
    assert f"\n95 % takes {draws_for(0.05)}." in PAGE
    assert f"the fastest 1 % it takes {draws_for(0.01)}." in PAGE


def test_it_names_every_strategy() -> None:
    listed = set(re.findall(r"`([\w-]+)`", "".join(re.findall(r"^\| `.*", PAGE, re.M))))
    assert listed == set(STRATEGIES)


@pytest.mark.medium
def test_its_commands_have_the_options_they_show() -> None:
    commands = root().commands["lab"].commands
    shown = [shlex.split(line) for line in re.findall(r"^\$ whet lab (.*)$", PAGE, re.M)]
    assert shown
    for name, *words in shown:
        known = {option for parameter in commands[name].params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known
