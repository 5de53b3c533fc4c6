"""What the README shows is what is there."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from whet.cli.app import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("example", ["blocked_norm", "dot"])
def test_examples_are_shown_as_they_are(example):
    assert f"```python\n{(ROOT / 'examples' / f'{example}.py').read_text()}```" in README


def test_every_file_it_points_to_exists():
    linked = re.findall(r"\]\(([\w./]+)\)", README)
    run = re.findall(r"benchmarks/\w+\.py|examples/\w+\.py", README)
    assert linked
    assert run
    for path in (*linked, *run):
        assert (ROOT / path).exists(), path


def commands_shown() -> list[list[str]]:
    """`$ WHET_MODE=… whet tune x --json | jq .best   # why` is `["tune", "x", "--json"]`."""
    found = []
    for line in re.findall(r"^\$ (.*)$", README, re.MULTILINE):
        words = shlex.split(line.split(" | ")[0], comments=True)
        if "whet" in words:
            found.append(words[words.index("whet") + 1 :])
    return found


@pytest.mark.parametrize("words", commands_shown(), ids=" ".join)
def test_every_command_it_shows_has_that_name_and_those_options(words):
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known


def test_every_module_the_architecture_names_is_there():
    modules = [f"/{path.relative_to(ROOT).as_posix()}" for path in ROOT.glob("*/**/*.py")]
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / "architecture.md").read_text())
    assert named
    for path in named:
        assert any(module.endswith(f"/{path}") for module in modules), path
