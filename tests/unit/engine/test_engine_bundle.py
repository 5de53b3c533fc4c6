"""`WHET_BUNDLE`: what a bundle knows is used, and neither measured again nor written to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whet
from whet.core.config import Config
from whet.core.errors import BundleError
from whet.core.event import TrialFinished
from whet.store import MemoryStore, open_store
from whet.store.bundles.writing import write_bundle
from whet.testing.fake_target import FakeTarget


def target(times: list[int], device: str = "fake device") -> FakeTarget:
    made = FakeTarget([{"t": t} for t in times], lambda config: 1000.0 * float(str(config["t"])))
    workload = made.workload()
    changed = type(workload.device)(device, workload.device.vendor, workload.device.architecture)
    made.workload = lambda: type(workload)(workload.kernel, "0", changed)  # type: ignore[method-assign]
    return made


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    store = MemoryStore()
    whet.tune(target([3, 1, 2]), store=store)
    path = tmp_path / "b.whet"
    write_bundle(path, store)
    monkeypatch.setenv("WHET_BUNDLE", str(path))
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "own.db"))
    return path


def test_tuning_what_the_bundle_knows_measures_nothing(bundle: Path, tmp_path: Path) -> None:
    before = bundle.read_bytes()
    events: list[Any] = []
    tuned = target([3, 1, 2])
    result = whet.tune(tuned, on_event=events.append)
    assert (result.source, result.config) == ("stored", Config(t=1))
    assert tuned.looked == []
    assert not any(isinstance(event, TrialFinished) for event in events)
    assert bundle.read_bytes() == before


def test_one_config_more_costs_one_trial_which_goes_to_ones_own_store(
    bundle: Path, tmp_path: Path
) -> None:
    result = whet.tune(target([3, 1, 2, 50]))
    assert [trial.config["t"] for trial in result.trials] == [50]
    assert result.known == 3
    with open_store(tmp_path / "own.db", read_only=True) as own:
        (known,) = own.workloads()
        assert [trial.config["t"] for trial in own.trials(known.workload.id)] == [50]


def test_choosing_finds_the_exact_result_and_makes_no_store(bundle: Path, tmp_path: Path) -> None:
    choice = whet.choose(target([3, 1, 2]))
    assert (choice.source, choice.config) == ("exact", Config(t=1))
    assert not (tmp_path / "own.db").exists()


def test_on_another_device_the_choice_is_loose_and_says_so(bundle: Path) -> None:
    choice = whet.choose(target([3, 1, 2], device="another device"))
    assert (choice.source, choice.config) == ("nearest", Config(t=1))
    assert "different device" in choice.reason


def test_only_what_was_chosen_is_enough_to_choose(bundle: Path) -> None:
    with open_store(":memory:", bundle=bundle) as store:
        write_bundle(bundle, store, best_only=True)
    assert whet.choose(target([3, 1, 2])).source == "exact"


def test_a_bundle_that_is_none_is_said_before_anything_is_tuned(
    bundle: Path, tmp_path: Path
) -> None:
    bundle.write_bytes(b"not a bundle")
    tuned = target([3, 1, 2])
    with pytest.raises(BundleError, match="was rejected"):
        whet.tune(tuned)
    assert tuned.looked == []
    assert not (tmp_path / "own.db").exists()


def test_the_settings_file_names_a_bundle_beside_it(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHET_BUNDLE")
    file = tmp_path / "whet.toml"
    file.write_text('bundle = "b.whet"\n')
    monkeypatch.setenv("WHET_CONFIG", str(file))
    assert whet.choose(target([3, 1, 2])).source == "exact"
