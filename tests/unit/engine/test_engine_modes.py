"""Modes: which holds, what `choose` and `tune` do in each, and what is logged of it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

import whet
from whet.core.config import Config
from whet.core.errors import NotTunedError, SettingsError, UsageError
from whet.core.mode import Mode
from whet.core.timing import Method
from whet.core.workload import Workload
from whet.engine.fallback import untuned
from whet.engine.fallback.mode import current_mode, mode
from whet.engine.settings import Settings
from whet.store import MemoryStore, Store
from whet.targets.function import FunctionTarget
from whet.testing.samples import a_run, a_timing, a_trial

FIRST, FAST, OTHER = Config(block=1), Config(block=2), Config(block=3)
CPU = Method("cpu")


def work(n: int, block: int) -> int:
    return block


def target(n: int = 4, *, mode: Mode | None = None, **options: object) -> FunctionTarget:
    return whet.function(
        work,
        {"block": [1, 2, 3]},
        kwargs={"n": n},
        mode=mode,
        isolate=False,
        **options,  # type: ignore[arg-type]
    )


def store_with(workload: Workload, *trials: tuple[Config, float, str]) -> MemoryStore:
    """Trials as (config, median, timer)."""
    store = MemoryStore()
    store.put_workload(workload)
    store.append(
        a_trial(workload, config, timing=a_timing(median, timer=timer))
        for config, median, timer in trials
    )
    return store


@pytest.fixture
def known() -> MemoryStore:
    return store_with(target().workload(), (FIRST, 9.0, "cpu"), (FAST, 5.0, "cpu"))


def test_contexts_nest() -> None:
    assert current_mode() == "tune"
    with mode("cached"):
        with mode("off"):
            assert current_mode() == "off"
        assert current_mode() == "cached"
    assert current_mode() == "tune"


def test_a_context_ends_with_an_exception() -> None:
    with pytest.raises(RuntimeError), mode("off"):
        raise RuntimeError
    assert current_mode() == "tune"


def test_a_mode_decorates_a_function_call_after_call() -> None:
    decorated = mode("require")(current_mode)  # type: ignore[operator]
    assert [decorated(), decorated()] == ["require", "require"]
    assert current_mode() == "tune"


def test_a_context_holds_for_its_own_thread() -> None:
    seen: list[str] = []
    with mode("off"):
        thread = threading.Thread(target=lambda: seen.append(current_mode()))
        thread.start()
        thread.join()
    assert seen == ["tune"]


def test_the_kernels_own_mode_then_the_context_then_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WHET_MODE", "record")
    assert current_mode() == "record"
    with mode("cached"):
        assert current_mode() == "cached"
        assert current_mode("off") == "off"
    assert current_mode(settings=Settings(mode="require")) == "require"
    monkeypatch.delenv("WHET_MODE")
    assert current_mode() == "tune"


def test_a_mode_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'cached'"):
        mode("cachd")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="mode 'never'"):
        target(mode="never")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="did you mean 'tune'"):
        whet.tune(target(), mode="Tune", store=MemoryStore())  # type: ignore[arg-type]


def test_a_variable_that_is_no_mode_is_a_setting_to_be_corrected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WHET_MODE", "sometimes")
    with pytest.raises(SettingsError, match="tune, cached, require, off or record"):
        current_mode()


# choose


def test_the_stored_best_of_the_workload_is_exact(known: MemoryStore) -> None:
    choice = whet.choose(target(), store=known)
    assert (choice.config, choice.source, choice.confidence) == (FAST, "exact", 1.0)


def test_another_key_takes_the_nearest(known: MemoryStore) -> None:
    choice = whet.choose(target(n=8), store=known)
    assert (choice.config, choice.source) == (FAST, "nearest")
    assert "n=4" in choice.reason


def test_timings_of_another_method_do_not_decide() -> None:
    store = store_with(
        target().workload(),
        (FIRST, 9.0, "cpu"),
        (OTHER, 8.0, "cpu"),
        (FAST, 5.0, "another timer"),
    )
    assert whet.choose(target(), store=store).config == OTHER


def test_a_run_of_another_method_does_not_decide() -> None:
    store = store_with(target().workload(), (OTHER, 8.0, "cpu"), (FAST, 5.0, "another timer"))
    store.save_run(a_run(target().workload(), OTHER, started=1.0))
    store.save_run(a_run(target().workload(), FAST, started=2.0))
    assert whet.choose(target(), store=store).config == OTHER


def test_a_known_workload_without_a_usable_trial_takes_the_nearest(known: MemoryStore) -> None:
    asked = target(n=8)
    known.put_workload(asked.workload())
    assert whet.choose(asked, store=known).config == FAST
    known.append([a_trial(asked.workload(), OTHER, timing=a_timing(1.0, timer="another timer"))])
    assert whet.choose(asked, store=known).source == "nearest"


def test_a_stored_best_that_is_no_longer_offered_gives_way_to_the_next_best() -> None:
    gone = Config(block=99)
    store = store_with(target().workload(), (gone, 1.0, "cpu"), (FAST, 5.0, "cpu"))
    assert whet.choose(target(), store=store).config == FAST


def test_without_anything_known_it_is_the_first() -> None:
    choice = whet.choose(target(), store=MemoryStore())
    assert (choice.config, choice.source, choice.confidence) == (FIRST, "first", 0.0)


def test_off_opens_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Store:
        raise AssertionError("a store was opened")

    monkeypatch.setattr(untuned, "open_for", refuse)
    assert whet.choose(target(mode="off")).config == FIRST
    with mode("cached"), pytest.raises(AssertionError):
        whet.choose(target())


def test_asking_makes_no_store(tmp_path: Path) -> None:
    whet.choose(target(), store=tmp_path / "store.db", mode="cached")
    assert list(tmp_path.iterdir()) == []


def test_require_names_what_is_missing_and_the_command(known: MemoryStore) -> None:
    with pytest.raises(NotTunedError) as told:
        whet.choose(target(n=8), store=known, mode="require")
    text = str(told.value)
    assert "work(n=8) on " in text
    assert text.endswith("whet tune FILE.py:work")
    assert told.value.exit_code == 2


MODULE_LEVEL = target(16)


def test_require_names_the_object_where_a_module_has_it(tmp_path: Path) -> None:
    with whet.open_store(tmp_path / "s.db") as store, pytest.raises(NotTunedError) as told:
        whet.choose(MODULE_LEVEL, store=store, mode="require")
    assert f"whet tune {__file__}:MODULE_LEVEL --store {tmp_path / 's.db'}" in str(told.value)


def test_record_writes_down_what_it_missed(known: MemoryStore) -> None:
    for _ in range(2):
        assert whet.choose(target(n=8), store=known, mode="record").config == FAST
    whet.choose(target(), store=known, mode="record")
    (miss,) = known.missed()
    assert miss.workload == target(n=8).workload()
    assert [(one.name, one.type, one.value) for one in miss.arguments] == [("n", "int", 8)]


def test_a_store_that_cannot_be_written_does_not_stop_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert whet.choose(target(), store=MemoryStore(read_only=True), mode="record").config == FIRST
    assert "missed keys" in caplog.text


# tune


@pytest.mark.parametrize("name", ["cached", "require", "record"])
def test_tune_returns_the_stored_result_where_it_may_not_tune(
    known: MemoryStore, name: Mode
) -> None:
    with mode(name):
        result = whet.tune(target(), store=known)
    assert (result.config, result.source, result.trials) == (FAST, "stored", ())


@pytest.mark.parametrize("name", ["cached", "require", "record", "off"])
def test_tune_raises_where_it_may_not_tune_and_nothing_is_stored(name: Mode) -> None:
    store = MemoryStore()
    with pytest.raises(
        NotTunedError, match=f"mode '{name}' does not tune; tune it with: whet tune"
    ):
        whet.tune(target(mode=name), store=store)
    assert len(store.missed()) == (name == "record")
    assert store.workloads() == []


def test_what_is_tuned_is_exact_afterwards() -> None:
    store = MemoryStore()
    whet.choose(target(), store=store, mode="record")
    best = whet.tune(target(), store=store).config
    assert store.missed() == []
    assert whet.choose(target(), store=store, mode="require").config == best


# buckets


def test_a_functions_key_holds_the_bucket() -> None:
    def key(n: int) -> object:
        return target(n, buckets={"n": "pow2"}).workload().key

    assert key(33) == key(64) == {"n": 64}
    assert key(65) == {"n": 128}


def test_a_bucket_must_be_of_the_key() -> None:
    with pytest.raises(UsageError, match="names 'm', which is not in key; valid: n"):
        target(buckets={"m": "pow2"})


# the log


@pytest.mark.medium
def test_a_tuning_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="whet")
    result = whet.tune(target(), store=MemoryStore())
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith('event=tuned kernel=work key="n=4" device=')
    assert f' pick="{result.config}" source=tuned cost_s=' in line
    assert ' reason="' in line
    assert "of 3 tried" in line


def test_it_is_silent_until_asked(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, known: MemoryStore
) -> None:
    whet.choose(target(), store=known)
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("WHET_LOG", "info")
    whet.choose(target(), store=known)
    whet.choose(target(), store=known)
    assert capfd.readouterr().err.count("whet: event=chosen kernel=work") == 2
    monkeypatch.delenv("WHET_LOG")
    whet.choose(target(), store=known)
    assert capfd.readouterr().err == ""
