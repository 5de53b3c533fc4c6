"""Parts of other packages: found by name, and one line where they are broken."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import whet
from plugin_package import install
from whet.cli.app import main
from whet.core.plugins import PluginError, find_plugin, plugin_names

STRATEGIES = "whet.strategies"


def test_a_part_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(
        install(tmp_path, {STRATEGIES: {"mine": "found_part:PART"}}, {"found_part": "PART = 3"})
    )
    found = find_plugin("strategy", "mine")
    assert found is not None
    assert (found.part, found.package) == (3, "some-parts")
    assert find_plugin("store", "mine") is None
    assert plugin_names("strategy") == ("mine",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import not_there_at_all", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("OTHER = 1", "AttributeError: module 'broken_part' has no attribute 'PART'"),
        ("PART = (", "SyntaxError: '(' was never closed"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("raise SystemExit", "SystemExit"),
    ],
)
def test_one_that_cannot_be_imported_costs_one_line_that_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    points = {STRATEGIES: {"broken": "broken_part:PART"}}
    monkeypatch.syspath_prepend(install(tmp_path, points, {"broken_part": text}))
    with pytest.raises(PluginError) as caught:
        find_plugin("strategy", "broken")
    said = str(caught.value)
    assert said.startswith("cannot import the strategy 'broken' of package some-parts: ")
    assert why in said
    assert "\n" not in said


def test_a_name_that_two_packages_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("parts-a", "parts-b"):
        folder = install(
            tmp_path / package, {STRATEGIES: {"mine": "part:PART"}}, {"part": "PART = 1"}, package
        )
        monkeypatch.syspath_prepend(folder)
    with pytest.raises(PluginError, match="parts-a and parts-b both have a strategy 'mine'"):
        find_plugin("strategy", "mine")


@pytest.fixture
def _unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: object) -> None:
        raise AssertionError("entry points were read")

    monkeypatch.setattr(importlib.metadata, "entry_points", refuse)


@pytest.mark.usefixtures("_unread")
def test_an_ordinary_tuning_reads_no_entry_points(tmp_path: Path) -> None:
    target = whet.function(lambda n: sum(range(n)), {"n": [200, 100]}, name="sum", isolate=False)
    result = whet.tune(target, store=tmp_path / "store.db", search="random")
    assert whet.choose(target, store=tmp_path / "store.db").config == result.config


@pytest.mark.medium
@pytest.mark.usefixtures("_unread")
def test_nor_does_an_ordinary_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHET_STORE", "sqlite:///store.db")
    (tmp_path / "kernel.py").write_text(
        "import whet\n"
        "def work(n):\n    return sum(range(n))\n"
        "sums = whet.function(work, {'n': [200, 100]}, key={'M': 1}, timer='cpu', name='sums')\n"
    )
    for words in (
        "tune kernel.py:sums -q --search gp",
        "best sums",
        "export python sums",
        "store stats --list",
        "lab replay h200-gemm-576 --search grid --workloads 1 --repeats 1 --evals 3",
        "export --help",
    ):
        assert main(words.split()) == 0, words


@pytest.mark.usefixtures("_unread")
def test_a_name_that_is_not_ours_reads_them() -> None:
    with pytest.raises(AssertionError, match="entry points were read"):
        find_plugin("strategy", "a name that no other test has asked for")


@pytest.mark.medium
def test_importing_whet_imports_nothing_that_reads_them() -> None:
    loaded = "print('importlib.metadata' in sys.modules)"
    said = [
        subprocess.run([sys.executable, "-c", f"{first}; {loaded}"], capture_output=True, text=True)
        for first in ("import sys", "import sys, whet; whet.tune, whet.open_store")
    ]
    assert [one.stdout for one in said] == ["False\n", "False\n"]
