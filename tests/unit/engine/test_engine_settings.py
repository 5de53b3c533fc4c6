"""Settings come from flags, the environment, a file and defaults, in that order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from whet.core.budget import Budget
from whet.core.errors import SettingsError
from whet.engine import settings as settings_module
from whet.engine.settings import SETTINGS, Settings, SettingSource, resolve_settings


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with nothing of ours in it."""
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def write_file(home: dict[str, str], text: str) -> Path:
    path = Path(home["XDG_CONFIG_HOME"]) / "whet" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_defaults_are_used_and_said_to_be_defaults(home: dict[str, str]) -> None:
    resolved = resolve_settings(environ=home)

    assert resolved.settings == Settings(
        store=None,
        budget=Budget(),
        seed=0,
        jobs=len(os.sched_getaffinity(0)),
        search="auto",
        build_limit_s=60.0,
        run_limit_s=30.0,
        memory_bytes=None,
    )
    assert dict(resolved.sources) == dict.fromkeys(SETTINGS, SettingSource("default"))
    assert resolved.notes == ()


def test_each_source_overrides_the_ones_after_it(home: dict[str, str]) -> None:
    path = write_file(home, 'seed = 1\njobs = 1\nbudget = "1s"\nsearch = "grid"\n')
    environ = home | {"WHET_SEED": "2", "WHET_JOBS": "2", "WHET_BUDGET": "2s"}
    resolved = resolve_settings({"seed": 3, "jobs": 3}, environ)

    assert (resolved.settings.seed, resolved.sources["seed"]) == (
        3,
        SettingSource("flag", "--seed"),
    )
    assert (resolved.settings.jobs, resolved.sources["jobs"]) == (
        3,
        SettingSource("flag", "--jobs"),
    )
    assert resolved.settings.budget == Budget(seconds=2.0)
    assert resolved.sources["budget"] == SettingSource("environment", "WHET_BUDGET")
    assert resolved.settings.search == "grid"
    assert resolved.sources["search"] == SettingSource("file", str(path))
    assert resolved.sources["memory"] == SettingSource("default")


def test_a_number_in_the_file_is_seconds(home: dict[str, str]) -> None:
    write_file(home, "budget = 5\n")
    assert resolve_settings({}, home).settings.budget == Budget(seconds=5.0)


def test_a_flag_that_is_none_and_an_empty_variable_were_not_given(home: dict[str, str]) -> None:
    resolved = resolve_settings({"seed": None}, home | {"WHET_SEED": ""})

    assert resolved.sources["seed"] == SettingSource("default")


def test_every_setting_has_its_variable(home: dict[str, str]) -> None:
    environ = home | {
        "WHET_STORE": "/elsewhere/store.db",
        "WHET_STORE_WAIT": "20ms",
        "WHET_TRUST": "promoted",
        "WHET_TRUSTED_KEYS": "/elsewhere/keys",
        "WHET_SIGNING_KEY": "/elsewhere/key.pem",
        "WHET_BUNDLE": "/elsewhere/results.whet",
        "WHET_LOCK": "/elsewhere/whet.lock",
        "WHET_BUDGET": "5m,200trials",
        "WHET_SEED": "7",
        "WHET_JOBS": "3",
        "WHET_SEARCH": "random",
        "WHET_EFFORT": "quick",
        "WHET_BUILD_LIMIT": "2m",
        "WHET_RUN_LIMIT": "500ms",
        "WHET_MEMORY": "8G",
        "WHET_L2": "warm",
        "WHET_L2_BYTES": "64M",
        "WHET_CUDA_GRAPH": "yes",
        "WHET_SAMPLES": "10",
        "WHET_LEARN": "no",
        "WHET_AGREE_WAIT": "1m",
        "WHET_BINARIES": "packed",
        "WHET_MODE": "cached",
        "WHET_IDLE_SHARE": "1%",
        "WHET_ISOLATE": "yes",
        "WHET_KEEP_IR": "yes",
        "WHET_STALL_TIMEOUT": "none",
        "WHET_DEVICE_MEMORY": "2G",
        "WHET_FIRST_CALL_LIMIT": "90s",
        "WHET_RECORD_VALUES": "100",
        "WHET_DIRECT": "yes",
        "WHET_INDUCTOR": "yes",
        "WHET_WAIT_LIMIT": "10s",
        "WHET_LLM_URL": "https://host/v1",
        "WHET_LLM_MODEL": "a model",
        "WHET_LLM_KEY": "A_VARIABLE",
        "WHET_LLM_HEADERS": "x-org: mine",
        "WHET_LLM_CERTIFICATES": "/elsewhere/certificates.pem",
        "WHET_LLM_TIMEOUT": "30s",
    }
    resolved = resolve_settings(environ=environ)

    assert resolved.settings == Settings(
        store="/elsewhere/store.db",
        store_wait_s=0.02,
        trust="promoted",
        trusted_keys="/elsewhere/keys",
        signing_key="/elsewhere/key.pem",
        bundle="/elsewhere/results.whet",
        lock="/elsewhere/whet.lock",
        budget=Budget(300.0, 200),
        seed=7,
        jobs=3,
        search="random",
        effort="quick",
        build_limit_s=120.0,
        run_limit_s=0.5,
        first_call_limit_s=90.0,
        memory_bytes=8 * 2**30,
        l2="warm",
        l2_bytes=64 * 2**20,
        cuda_graph=True,
        samples=10,
        learn=False,
        agree_wait_s=60.0,
        binaries="packed",
        mode="cached",
        idle_share=0.01,
        isolate=True,
        keep_ir=True,
        stall_timeout_s=None,
        device_memory_bytes=2 * 2**30,
        record_values=100,
        direct=True,
        inductor=True,
        wait_limit_s=10.0,
        llm_url="https://host/v1",
        llm_model="a model",
        llm_key="A_VARIABLE",
        llm_headers="x-org: mine",
        llm_certificates="/elsewhere/certificates.pem",
        llm_timeout_s=30.0,
    )
    assert {source.kind for source in resolved.sources.values()} == {"environment"}


def test_trust_is_part_of_a_shared_store_s_url(home: dict[str, str]) -> None:
    url = "postgresql://db/whet"
    environ = {**home, "WHET_STORE": url, "WHET_TRUST": "promoted", "WHET_TRUSTED_KEYS": "/k"}
    found = resolve_settings(environ=environ).settings.store
    assert found == f"{url}?trust=promoted&trusted_keys=/k"
    own = {**environ, "WHET_STORE": f"{url}?trust=all"}
    assert resolve_settings(environ=own).settings.store == f"{url}?trust=all&trusted_keys=/k"


def test_a_limit_for_runs_is_one_for_first_calls_unless_they_have_their_own(
    home: dict[str, str],
) -> None:
    def first_call_s(**variables: str) -> float:
        return resolve_settings(environ={**home, **variables}).settings.first_call_s

    assert first_call_s() > Settings().run_limit_s
    assert first_call_s(WHET_RUN_LIMIT="3s") == 3.0
    assert first_call_s(WHET_RUN_LIMIT=f"{Settings().run_limit_s:g}s") == Settings().run_limit_s
    assert first_call_s(WHET_RUN_LIMIT="3s", WHET_FIRST_CALL_LIMIT="2m") == 120.0
    assert Settings(run_limit_s=0.5).first_call_s == 0.5


def test_the_names_of_0_1_are_taken_with_a_note(home: dict[str, str]) -> None:
    found = resolve_settings(environ={**home, "WHET_WEDGE": "7s", "WHET_RACE": "halving"})
    assert found.settings == Settings(stall_timeout_s=7.0)
    renamed, gone = found.notes
    assert "WHET_WEDGE" in renamed
    assert renamed.endswith("use stall_timeout")
    assert "WHET_RACE" in gone


def test_of_an_old_and_a_new_name_in_one_place_the_new_one_counts(home: dict[str, str]) -> None:
    environ = {**home, "WHET_WEDGE": "7s", "WHET_STALL_TIMEOUT": "9s"}
    assert resolve_settings(environ=environ).settings.stall_timeout_s == 9.0
    assert resolve_settings({"wedge": 3.0}, environ).settings.stall_timeout_s == 3.0


def test_typed_flags_are_taken_as_they_are(home: dict[str, str]) -> None:
    flags = {"budget": Budget(trials=9), "build_limit": 1.5, "memory": 4096}
    settings = resolve_settings(flags, home).settings

    assert settings.budget == Budget(trials=9)
    assert settings.build_limit_s == 1.5
    assert settings.memory_bytes == 4096


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512M", 512 * 2**20), ("8GiB", 8 * 2**30), ("1.5k", 1536), ("4096", 4096), ("none", None)],
)
def test_memory_is_a_size(home: dict[str, str], text: str, expected: int | None) -> None:
    assert resolve_settings({"memory": text}, home).settings.memory_bytes == expected


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("WHET_BUDGET", "soon", "such as 30s, 5m or 200trials"),
        ("WHET_SEED", "-1", "a whole number, 0 or more"),
        ("WHET_JOBS", "0", "a whole number from 1 to 100,000"),
        ("WHET_JOBS", "two", "a whole number from 1 to 100,000"),
        ("WHET_JOBS", "9" * 400, "a whole number from 1 to 100,000"),
        ("WHET_BUILD_LIMIT", "200trials", "such as 30s or 2m"),
        ("WHET_RUN_LIMIT", "0", "such as 30s or 2m"),
        ("WHET_RUN_LIMIT", "nan", "such as 30s or 2m"),
        ("WHET_MEMORY", "lots", "such as 512M or 8G"),
        ("WHET_STORE", " ", "a path or postgresql://host/database"),
        ("WHET_L2", "tepid", "cold or warm"),
        ("WHET_L2_BYTES", "-1", "0 for none"),
        ("WHET_CUDA_GRAPH", "perhaps", "yes or no"),
        ("WHET_SAMPLES", "0", "from 1 to 1,000,000"),
        ("WHET_SAMPLES", "99999999999", "from 1 to 1,000,000"),
    ],
)
def test_a_bad_value_is_named_with_its_source_and_what_would_be_valid(
    home: dict[str, str], variable: str, value: str, remedy: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve_settings(environ=home | {variable: value})

    message = str(caught.value)
    assert variable.removeprefix("WHET_").lower() in message
    assert f"environment {variable}" in message
    assert repr(value) in message
    assert remedy in message


def test_a_bad_value_in_the_file_names_the_file(home: dict[str, str]) -> None:
    path = write_file(home, "jobs = true\n")

    with pytest.raises(SettingsError, match="jobs = True") as caught:
        resolve_settings(environ=home)
    assert str(path) in str(caught.value)


def test_an_unknown_name_in_the_file_is_an_error_with_a_suggestion(home: dict[str, str]) -> None:
    write_file(home, 'bugdet = "30s"\n')

    with pytest.raises(SettingsError, match=r"'bugdet'.*did you mean 'budget'"):
        resolve_settings(environ=home)


def test_an_unknown_flag_is_an_error_with_a_suggestion(home: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"'sede'.*did you mean 'seed'"):
        resolve_settings({"sede": 1}, home)


def test_an_unknown_variable_is_noted_and_ignored(home: dict[str, str]) -> None:
    resolved = resolve_settings(environ=home | {"WHET_BUGDET": "30s", "WHET_DEBUG": "1"})

    assert resolved.settings.budget == Budget()
    [note] = resolved.notes
    assert "WHET_BUGDET" in note
    assert "'WHET_BUDGET'" in note


def test_whet_config_names_another_file(home: dict[str, str], tmp_path: Path) -> None:
    write_file(home, "seed = 1\n")
    other = tmp_path / "other.toml"
    other.write_text("seed = 2\n")
    resolved = resolve_settings(environ=home | {"WHET_CONFIG": str(other)})

    assert resolved.settings.seed == 2
    assert resolved.sources["seed"] == SettingSource("file", str(other))


def test_a_named_file_that_is_missing_is_an_error(home: dict[str, str], tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"

    with pytest.raises(SettingsError, match="does not exist"):
        resolve_settings(environ=home | {"WHET_CONFIG": str(missing)})
    with pytest.raises(SettingsError, match="does not exist"):
        resolve_settings(environ=home, file=missing)


def test_a_file_that_is_not_toml_is_said_to_be_so(home: dict[str, str]) -> None:
    path = write_file(home, "budget: 30s\n")

    with pytest.raises(SettingsError, match="is not valid TOML") as caught:
        resolve_settings(environ=home)
    assert str(path) in str(caught.value)


def test_a_relative_configuration_folder_is_ignored(home: dict[str, str], tmp_path: Path) -> None:
    fallback = tmp_path / ".config" / "whet" / "config.toml"
    fallback.parent.mkdir(parents=True)
    fallback.write_text("seed = 5\n")

    assert resolve_settings(environ=home | {"XDG_CONFIG_HOME": "here"}).settings.seed == 5


@pytest.mark.parametrize("store", [":memory:", "sqlite:///a.db", "~/a.db", "/a.db"])
def test_a_store_in_the_file_that_is_not_a_relative_path_stays(
    home: dict[str, str], store: str
) -> None:
    write_file(home, f'store = "{store}"\n')

    assert resolve_settings(environ=home).settings.store == store


def test_a_relative_store_in_the_file_lies_beside_the_file(home: dict[str, str]) -> None:
    path = write_file(home, 'store = "mine.db"\n')

    assert resolve_settings(environ=home).settings.store == str(path.parent / "mine.db")


def test_what_was_resolved_is_parsed_again_only_when_something_has_changed(
    home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    parse = settings_module.parse_setting

    def counted(name: str, *more: Any) -> Any:
        parsed.append(name)
        return parse(name, *more)

    monkeypatch.setattr(settings_module, "parse_setting", counted)
    path = write_file(home, "seed = 11\n")
    for _ in range(2):
        assert resolve_settings(environ=home).settings.seed == 11
    assert parsed == ["seed"]
    path.write_text("seed = 12\n")
    assert resolve_settings(environ=home).settings.seed == 12
    assert resolve_settings(environ=home | {"WHET_SEED": "13"}).settings.seed == 13
    assert resolve_settings({"seed": 14}, environ=home).settings.seed == 14
    path.unlink()
    assert resolve_settings(environ=home).settings.seed == 0


def test_cores_are_counted_each_time(home: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_settings(environ=home)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(77)))
    assert resolve_settings(environ=home).settings.jobs == 77
