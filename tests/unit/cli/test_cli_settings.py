"""`whet settings` prints each value and where it came from."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cli_runs import Whet, one_line
from whet.engine.settings import SETTINGS
from whet.search import STRATEGIES


def test_every_setting_is_a_row_with_its_source(
    whet: Whet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "w.toml"
    file.write_text("jobs = 3\n")
    monkeypatch.setenv("WHET_CONFIG", str(file))
    monkeypatch.setenv("WHET_BUDGET", "30s")
    ran = whet("settings", "--store", "mine.db")
    rows = {line.split()[0]: line.split() for line in ran.out.splitlines()[1:]}

    assert ran.code == 0
    assert rows["store"][2:] == ["flag", "--store"]
    assert rows["budget"][1:] == ["30s", "environment", "WHET_BUDGET"]
    assert rows["jobs"][1:3] == ["3", "file"]
    assert rows["search"][1:] == ["auto", "default"]
    assert rows["memory"] == ["memory", "all", "free", "memory", "default"]
    assert ran.widest <= 80


def test_json_has_value_source_and_place(whet: Whet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_MEMORY", "512M")
    settings = json.loads(whet("settings", "--json").out)["settings"]
    assert settings["memory"] == {
        "value": 512 * 2**20,
        "source": "environment",
        "where": "WHET_MEMORY",
    }
    assert settings["store"]["value"] == f"{os.environ['XDG_DATA_HOME']}/whet/store.db"
    assert settings["store"]["source"] == "default"


def test_looking_makes_no_store(whet: Whet) -> None:
    whet("settings")
    assert not Path(os.environ["XDG_DATA_HOME"], "whet").exists()


def test_a_bad_file_is_one_line_and_code_2(
    whet: Whet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "w.toml"
    file.write_text("jops = 3\n")
    monkeypatch.setenv("WHET_CONFIG", str(file))
    assert "mean 'jobs'" in one_line(whet("settings"))


def test_the_help_says_what_each_setting_means(whet: Whet) -> None:
    ran = whet("settings", "--help")
    meanings = ran.out.partition("Settings:\n")[2]
    for name in SETTINGS:
        assert f"\n    {name} " in f"\n{meanings}"
    for name in STRATEGIES:
        assert name in meanings
    assert ran.widest <= 80
