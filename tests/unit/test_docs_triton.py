"""`docs/triton.md` has every argument of `whet.autotune`, and its example works."""

import inspect
import re
from pathlib import Path

import pytest

pytest.importorskip("triton")

from triton.runtime import autotuner as stock

import whet

PAGE = (Path(__file__).parents[1].parent / "docs" / "triton.md").read_text()


def section(title):
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def listed(title):
    """The names in the first column of the section's table."""
    return re.findall(r"^\| `(\w+)` \|", section(title), re.MULTILINE)


def test_tritons_arguments_are_listed_in_tritons_order():
    assert listed("Triton's arguments") == list(inspect.signature(stock.autotune).parameters)


def test_whets_own_arguments_are_listed_in_order():
    ours = [
        name
        for name, parameter in inspect.signature(whet.autotune).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    assert listed("Whet's arguments") == ours


def test_every_argument_is_in_one_of_the_tables():
    named = [*listed("Triton's arguments"), *listed("Whet's arguments")]
    assert named == list(inspect.signature(whet.autotune).parameters)


def test_every_file_it_links_to_exists():
    for path in re.findall(r"\]\(\.\./([\w./]+)\)", PAGE):
        assert (Path(__file__).parents[2] / path).exists(), path


def test_every_mode_and_setting_it_names_is_one():
    from whet.core.mode import MODES

    row = next(line for line in section("Whet's arguments").splitlines() if "`mode`" in line)
    assert set(re.findall(r'`"(\w+)"`', row)) == set(MODES)


@pytest.mark.medium
@pytest.mark.timeout(120)
def test_its_example_can_be_precompiled(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    from whet.cli import main

    example = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    (tmp_path / "kernel.py").write_text(example)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WHET_STORE", ":memory:")
    command = re.findall(r"whet (precompile kernel.py:double .*?)  +#", PAGE)[0].split()

    assert main(command) == 0
    assert "4 of 4 compiled" in capsys.readouterr().out
