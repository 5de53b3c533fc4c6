"""Callables whose first call compiles: it is neither timed, nor cut by what other configs need."""

import time
from dataclasses import replace

import pytest

import whet
from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.run import Outcome
from whet.core.status import Limit, Status
from whet.engine import Settings
from whet.engine.recall import CUT_BY_0_1, Knowledge
from whet.engine.steps import samples
from whet.engine.target import BenchLimits
from whet.measure.bench.protocol import Sampled, Visit
from whet.store import MemoryStore

FOREVER = 600.0


@pytest.fixture(autouse=True)
def short_derived_limit(monkeypatch):
    """Seconds of slack would be seconds of waiting."""
    monkeypatch.setattr(samples, "LOOK_SLACK_S", 0.4)


def lazy(first_s, later_s=None, **options):
    """Modes whose first call in a process takes `first_s` of them, and later ones `later_s`."""
    later_s = later_s or {}
    called = set()

    def work(mode):
        time.sleep(later_s.get(mode, 0.001) if mode in called else first_s[mode])
        called.add(mode)

    return whet.function(work, {"mode": list(first_s)}, key={}, **options)


def tuned(target, store=None, **settings):
    store = MemoryStore() if store is None else store
    return whet.tune(target, store=store, settings=Settings(**settings))


def of(result, mode):
    return next(trial for trial in result.trials if trial.config == Config(mode=mode))


@pytest.mark.medium
def test_a_slow_first_call_does_not_cost_the_fastest_config_its_place():
    target = lazy({"plain": 0.0, "jit": 1.2}, {"plain": 0.004})
    result = tuned(target)
    assert {str(trial.status) for trial in result.trials} <= {"ok", "outraced"}
    assert result.config == Config(mode="jit")


@pytest.mark.medium
def test_first_calls_have_a_place_in_the_ledger_and_in_the_cost_of_their_config():
    result = tuned(lazy({"plain": 0.0, "jit": 0.5}))
    assert result.run.cost.wall["first_call"] >= 0.5
    assert of(result, "jit").cost.work["first_call"] >= 0.5
    assert result.run.cost.wall["check"] == pytest.approx(0.0, abs=0.01)


@pytest.mark.medium
def test_later_calls_keep_the_limit_that_the_quickest_config_sets():
    result = tuned(lazy({"plain": 0.0, "stuck": 0.0}, {"stuck": FOREVER}), run_limit_s=500.0)
    trial = of(result, "stuck")
    assert trial.status is Status.RUN_TIMEOUT
    assert "the quickest" in trial.error
    assert trial.limit.kind == "run_s"
    assert trial.limit.value < trial.limit.configured == 500.0


@pytest.mark.medium
def test_a_first_call_that_never_ends_is_cut_at_its_own_limit_which_is_said():
    result = tuned(lazy({"plain": 0.0, "stuck": FOREVER}), first_call_limit_s=0.7)
    trial = of(result, "stuck")
    assert (trial.status, trial.limit) == (Status.RUN_TIMEOUT, Limit("first_call_s", 0.7))
    assert "after 0.7 s" in trial.error
    assert "WHET_FIRST_CALL_LIMIT" in trial.error
    assert trial.cost.work["first_call"] >= 0.7


@pytest.mark.medium
def test_a_first_call_that_the_budget_cuts_is_not_held_against_its_config():
    result = tuned(
        lazy({"plain": 0.0, "stuck": FOREVER}), budget=whet.Budget(seconds=1.5), search="grid"
    )
    assert [trial.config for trial in result.trials] == [Config(mode="plain")]


@pytest.mark.medium
def test_a_higher_limit_for_first_calls_gives_another_try_and_the_same_one_does_not():
    store, target = MemoryStore(), lazy({"plain": 0.0, "jit": 0.9}, {"plain": 0.003})
    assert tuned(target, store, first_call_limit_s=0.3).config == Config(mode="plain")
    assert tuned(target, store, first_call_limit_s=0.3).source == "stored"
    assert tuned(target, store, first_call_limit_s=30.0).config == Config(mode="jit")


@pytest.mark.medium
def test_a_cut_by_a_derived_limit_holds_until_the_limit_that_was_set_is_raised():
    store = MemoryStore()
    target = lazy({"plain": 0.0, "stuck": 0.0}, {"stuck": FOREVER})
    tuned(target, store, run_limit_s=100.0)
    assert tuned(target, store, run_limit_s=100.0).source == "stored"
    again = tuned(target, store, run_limit_s=200.0)
    assert [trial.config for trial in again.trials] == [Config(mode="stuck")]


@pytest.mark.medium
def test_what_0_1_cut_is_tried_again():
    store, target = MemoryStore(), lazy({"plain": 0.0, "jit": 0.9}, {"plain": 0.003})
    result = tuned(target, store)
    cut = replace(
        of(result, "jit"),
        id="cut",
        status=Status.RUN_TIMEOUT,
        timing=None,
        error=f"still running after 5.9 s and was killed, {CUT_BY_0_1} 0.02 s in all",
        limit=Limit("run_s", 30.0),
    )
    store.append([cut])
    store.save_run(
        replace(result.run, id="old", best=Config(mode="plain"), outcome=Outcome.FINISHED)
    )
    workload = target.workload().id
    known = Knowledge.recall(store, workload, target.space, {"run_s": 30.0}, target.method)
    assert Config(mode="jit").id not in known.settled
    assert tuned(target, store).config == Config(mode="jit")


def test_prepare_takes_the_place_of_the_first_call():
    prepared = []

    def prepare(scale, mode):
        prepared.append((scale, mode))

    def work(scale, mode):
        assert (scale, mode) in prepared
        return mode

    target = whet.function(
        work,
        {"mode": [1, 2]},
        kwargs={"scale": 3},
        key={},
        prepare=prepare,
        isolate=False,
        check=lambda result, config: result == config["mode"],
    )
    result = tuned(target)
    assert {trial.status.measured for trial in result.trials} == {True}
    assert sorted(set(prepared)) == [(3, 1), (3, 2)]


@pytest.mark.medium
def test_what_prepare_raises_is_its_configs_failure():
    def prepare(mode):
        if mode == 2:
            raise ValueError("no such mode")

    target = whet.function(lambda mode: mode, {"mode": [1, 2]}, key={}, prepare=prepare)
    trial = of(tuned(target), 2)
    assert trial.status is Status.RUN_ERROR
    assert "no such mode" in trial.error


def test_a_prepare_that_cannot_be_called_is_refused():
    with pytest.raises(whet.UsageError, match="prepare= needs a callable, not str"):
        whet.function(lambda a: a, {"a": [1]}, prepare="compile")


def test_the_first_call_gives_the_result_that_is_checked(tmp_path):
    calls = tmp_path / "calls"
    calls.touch()

    def work(mode):
        with calls.open("a") as file:
            file.write("x")
        return len(calls.read_text())

    target = whet.function(
        work, {"mode": [1]}, key={}, check=lambda result, config: result == 1, isolate=False
    )
    assert tuned(target).best.status is Status.OK


@pytest.mark.medium
def test_a_worker_that_is_killed_costs_others_their_first_call_again_and_that_is_booked_there():
    """`stuck` ends the process in which `jit` was ready, which then compiles once more."""
    target = lazy({"jit": 0.3, "stuck": 0.0}, {"stuck": FOREVER})
    jit, stuck = Config(mode="jit"), Config(mode="stuck")
    with target.bench(BenchLimits(first_call_s=lambda: 60.0)) as bench:
        bench.measure(Visit(((jit, None),), 2, first=True, limit_s=60.0))
        [failure] = bench.measure(Visit(((stuck, None),), 2, first=True, limit_s=0.3))
        assert isinstance(failure, ConfigFailure)
        [once, again] = [bench.measure(Visit(((jit, None),), 1, limit_s=60.0))[0] for _ in range(2)]
        assert isinstance(once, Sampled)
        assert isinstance(again, Sampled)
        assert once.seconds["first_call"] >= 0.3
        assert "first_call" not in again.seconds


@pytest.mark.medium
def test_a_second_call_that_compiles_as_well_is_not_taken_for_the_speed_of_the_config():
    calls = []

    def work(mode):
        calls.append(mode)
        slow = {"plain": 0.0, "jit": {1: 0.5, 2: 0.1}.get(calls.count("jit"), 0.0)}[mode]
        time.sleep(slow or {"plain": 0.004, "jit": 0.001}[mode])

    target = whet.function(work, {"mode": ["plain", "jit"]}, key={}, isolate=False)
    assert tuned(target).config == Config(mode="jit")
