"""With `effort="quick"` a run leaves out what is not expected to be worth its build."""

from __future__ import annotations

from math import log2

import pytest

from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.run import Coverage, Result, Run, Stop
from whet.engine import tune
from whet.engine.settings import Settings
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget

SIZE = 48
BEST = Config(block=5, warps=2)


def time_ns(config: Config) -> float:
    return 1000.0 * (1 + ((config["block"] - 5) / 8) ** 2 + 0.1 * log2(config["warps"] / 2) ** 2)


def fake(times=time_ns, shares_host: bool = False, building: bool = False) -> FakeTarget:
    """Builds nothing unless it is told to: a process for each config is what a run here costs."""
    space = {"block": list(range(1, 13)), "warps": [1, 2, 4, 8]}
    return FakeTarget(space, times, building=building, shares_host=shares_host)


@pytest.fixture(scope="module")
def quick() -> Result:
    """Of a run whose configs are built."""
    return tune(fake(building=True), store=MemoryStore(), effort="quick", jobs=4)


def left_out(result) -> list[str]:
    return [note for note in result.notes if note.startswith("left out")]


@pytest.mark.slow
@pytest.mark.parametrize("shares_host", [False, True])
def test_a_quick_run_finds_the_best_without_trying_all(shares_host: bool) -> None:
    target = fake(shares_host=shares_host, building=True)
    result = tune(target, store=MemoryStore(), effort="quick", jobs=4)
    assert time_ns(result.config) <= 1.05 * time_ns(BEST)
    assert result.run.tried <= 0.6 * SIZE
    assert target.space.first in target.looked[:4]  # whichever of four builds ends first


@pytest.mark.slow
def test_it_says_what_was_left_out_and_how_to_go_on(quick: Result) -> None:
    coverage = quick.run.coverage
    assert coverage is not None
    assert coverage.stopped is Stop.EFFORT
    assert coverage.next_option == "--effort full"
    left = SIZE - coverage.tried
    [said] = left_out(quick)
    assert f"{left} of 48" in said
    assert "effort=full" in said
    assert not quick.run.exhaustive


@pytest.mark.slow
def test_a_later_full_run_tries_only_the_rest_and_answers_both() -> None:
    store = MemoryStore()
    first = tune(fake(), store=store, effort="quick", jobs=4)
    again = tune(fake(), store=store, effort="quick", jobs=4)
    assert again.source == "stored"
    assert again.run.coverage.stopped is Stop.EFFORT
    target = fake(building=True)
    full = tune(target, store=store, effort="full", jobs=4)
    assert full.source == "tuned"
    tried = {trial.config for trial in first.trials}
    # The best so far may be built again, to be measured beside a newcomer.
    assert set(target.built) - {first.config} == set(target.space) - tried
    assert full.run.coverage.complete
    assert full.config == BEST
    assert left_out(full) == []
    for effort in ("quick", "full"):
        assert tune(fake(), store=store, effort=effort, jobs=4).source == "stored"


def test_full_is_the_default() -> None:
    assert Settings().effort == "full"
    assert tune(fake(), store=MemoryStore()).run.coverage.complete


@pytest.mark.medium
def test_the_argument_wins_over_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_EFFORT", "quick")
    assert tune(fake(), store=MemoryStore(), jobs=4).run.stopped is Stop.EFFORT
    assert tune(fake(), store=MemoryStore(), effort="full").run.coverage.complete


def test_an_unknown_effort_is_refused() -> None:
    with pytest.raises(UsageError, match="effort 'quik' is not valid; did you mean 'quick'"):
        tune(fake(), store=MemoryStore(), effort="quik")  # type: ignore[arg-type]


def test_a_search_that_was_asked_for_chooses_the_configs_itself() -> None:
    result = tune(fake(), store=MemoryStore(), effort="quick", search="random")
    assert result.run.coverage.complete
    assert any("effort=quick" in note and "search=random" in note for note in result.notes)


def test_a_short_list_of_equals_is_not_left_to_its_first() -> None:
    """Nothing is known of a config that is unlike all others."""
    target = FakeTarget(
        {"t": list(range(1, 13))}, lambda config: 100.0 if config["t"] == 12 else 1000.0
    )
    result = tune(target, store=MemoryStore(), effort="quick", jobs=1)
    assert len(result.trials) >= 4


@pytest.mark.medium
def test_the_authors_first_is_measured_however_poor_it_looks() -> None:
    target = fake(lambda config: time_ns(config) + 9000.0 * (config["block"] == 1))
    result = tune(target, store=MemoryStore(), effort="quick", jobs=16)
    assert result.first is not None
    assert result.first.status.measured


@pytest.mark.medium
def test_what_other_runs_left_behind_is_learned_from() -> None:
    """A quick run goes on from a run with a small budget."""
    store = MemoryStore()
    tune(fake(), store=store, budget="20trials", jobs=4)
    result = tune(fake(), store=store, effort="quick", jobs=4)
    assert time_ns(result.config) <= 1.05 * time_ns(BEST)
    assert len(result.trials) < 0.5 * SIZE


@pytest.mark.slow
def test_the_reason_is_stored_and_a_run_without_it_is_read(quick: Result) -> None:
    data = quick.run.to_json()
    assert data["stopped"] == "effort"
    assert Run.from_json(data).stopped is Stop.EFFORT
    older = {name: value for name, value in data.items() if name != "stopped"}
    assert Run.from_json(older).stopped is None


def test_its_coverage_reads_as_a_sentence() -> None:
    coverage = Coverage(12, 48, Stop.EFFORT, Settings().budget)
    assert str(coverage).startswith("12 of 48 configs tried: ")
    assert str(coverage).endswith(' effort="full"')
