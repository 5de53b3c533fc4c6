"""Files with keys of more parts than anybody writes are refused before they are parsed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from whet.core.errors import SettingsError, UsageError
from whet.core.toml import parse_toml
from whet.doctor.budget import read_budget
from whet.engine.policy.reading import read_policy
from whet.engine.settings import resolve_settings
from whet.targets.schedule.script import read_parameters

DEEP = ".".join(["a"] * 3000)


@pytest.mark.parametrize(
    "text",
    [
        f"{DEEP} = 1",
        f"[{DEEP}]\nb = 1",
        f"[[{DEEP}]]\nb = 1",
        f"b = {{ {DEEP} = 1 }}",
        " . ".join(['"\\""'] * 3000) + " = 1",
        ".".join(["'a.b'"] * 3000) + " = 1",
    ],
    ids=["key", "table", "list", "inline", "quoted", "literal"],
)
def test_a_key_of_thousands_of_parts_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError, match=r"Too many dots, as of keys \(at line 2,"):
        parse_toml(f"# first\n{text}\n")


def test_so_are_many_keys_of_some_hundred_parts() -> None:
    with pytest.raises(tomllib.TOMLDecodeError, match="Too many dots"):
        parse_toml("".join(f"b{n}.{DEEP[:599]} = 1\n" for n in range(100)))


@pytest.mark.parametrize(
    "text",
    [f"a = [{', '.join(['1.5'] * 200)}]", f"{DEEP[:199]} = 1", f'a = "{DEEP[:2000]}"'],
    ids=["numbers", "key", "text"],
)
def test_what_somebody_may_have_written_is_read(text: str) -> None:
    assert parse_toml(text) == tomllib.loads(text)


@pytest.mark.parametrize("text", [f"a = {'[' * 5000}", f"a = {'9' * 5000}"])
def test_what_is_past_pythons_limits_is_not_valid(text: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_toml(text)


@pytest.mark.medium
def test_every_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(f"{DEEP} = 1\n")
    with pytest.raises(
        SettingsError, match=f"settings file {path} is not valid TOML: Too many dots"
    ):
        resolve_settings({}, {}, path)
    with pytest.raises(SettingsError, match=f"{path}:1: not valid TOML: Too many dots"):
        read_policy(path)
    with pytest.raises(UsageError, match=f"{path} is not valid TOML: Too many dots"):
        read_budget(path)
    with pytest.raises(UsageError, match="mine: Too many dots"):
        read_parameters(path.read_text(), "mine")


def test_a_settings_file_is_of_a_size_that_somebody_may_have_written(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text("# much\n" * 50_000)
    with pytest.raises(SettingsError, match=f"settings file {path} is larger than 256 KiB"):
        resolve_settings({}, {}, path)
