"""The loop, on a device whose truth is known."""

import time

import pytest

import whet
from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.errors import ConfigFailure, UsageError
from whet.core.event import (
    BestChanged,
    BuildFinished,
    BuildStarted,
    DuelEnded,
    DuelStarted,
    RunFinished,
    RunStarted,
    TrialFinished,
)
from whet.core.run import Outcome
from whet.core.space import Space
from whet.core.status import Status
from whet.core.trial import WALL_PHASES
from whet.engine import Plan, tune
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget
from whet.testing.fakes import NoiseModel
from whet.workers.pool import open_pool
from whet.workers.task import Task

NOISY = NoiseModel(gaussian=0.02, tail_chance=0.05, tail_factor=3.0)


def micros(config: Config) -> float:
    return 1000.0 * config["t"]


def fake(times, **more):
    return FakeTarget([{"t": t} for t in times], micros, **more)


class TestFinding:
    @pytest.mark.medium
    def test_the_fastest_of_many_is_found_through_noise(self):
        for seed in range(5):
            times = [100 + 5 * i for i in range(40)]
            times = times[seed * 7 :] + times[: seed * 7]
            result = tune(fake(times, noise=NOISY, seed=seed), store=MemoryStore())
            assert result.config["t"] <= 105
            assert len(result.trials) == 40
            assert result.first.config["t"] == times[0]

    def test_the_race_spends_few_samples_on_losers_and_many_on_the_leaders(self):
        times = [100, 101, *range(150, 1130, 10)]
        result = tune(fake(times, noise=NOISY), store=MemoryStore())
        counts = {trial.config["t"]: len(trial.timing.samples) for trial in result.trials}
        assert sorted(counts.values())[len(counts) // 2] <= 2
        assert min(counts[100], counts[101]) >= 6

    def test_equal_kernels_are_said_to_be_equal_and_the_first_of_them_chosen(self):
        result = tune(
            FakeTarget({"a": [1, 2], "t": [50, 90]}, micros, noise=NoiseModel(gaussian=0.005)),
            store=MemoryStore(),
        )
        assert result.config == Config(a=1, t=50)
        assert result.equals == (Config(a=2, t=50),)
        assert any("no significant difference" in note for note in result.notes)
        ok = {trial.config for trial in result.trials if trial.status is Status.OK}
        assert ok == {Config(a=1, t=50), Config(a=2, t=50)}

    def test_among_equals_that_beat_the_first_the_one_with_fewer_registers_is_chosen(self):
        target = FakeTarget(
            [{"a": 1, "t": 60}, {"a": 1, "t": 50}, {"a": 2, "t": 50}],
            micros,
            facts=lambda config: {"registers": 100 - config["a"]},
        )
        assert tune(target, store=MemoryStore()).config == Config(a=2, t=50)

    def test_a_fixed_plan_gives_every_config_the_same_samples(self):
        result = tune(fake([3, 1, 2], noise=NOISY), store=MemoryStore(), plan=Plan.fixed(7))
        assert {len(trial.timing.samples) for trial in result.trials} == {7}
        assert {trial.status for trial in result.trials} == {Status.OK}


class _Calculating:
    """Asks a pool for a worker while it is asked for configs, and sees whether that starts."""

    name = "calculating"

    def __init__(self, pool, configs):
        self.pool, self.configs, self.started = pool, list(configs), []

    def ask(self, n):
        ticket = self.pool.submit(Task(len, ((),)))
        self.started += [one for one in self.pool.wait(0.2) if one.ticket == ticket]
        asked, self.configs = self.configs[:n], self.configs[n:]
        return asked

    def tell(self, trials):
        pass


@pytest.mark.medium
def test_no_worker_is_forked_while_a_strategy_calculates():
    target = fake([3, 1, 2])
    with open_pool(1, "fork") as pool:
        strategy = _Calculating(pool, target.space)
        result = tune(target, store=MemoryStore(), search=strategy)
        assert result.config["t"] == 1
        assert strategy.started == []
        assert pool.wait(None)


class TestRemembering:
    @pytest.mark.medium
    def test_a_second_run_builds_and_measures_nothing(self):
        store = MemoryStore()
        tune(fake([3, 1, 2], building=True), store=store)
        again = fake([3, 1, 2], building=True)
        result = tune(again, store=store)
        assert (again.built, again.looked) == ([], [])
        assert result.source == "stored"
        assert result.config["t"] == 1
        assert result.first.config["t"] == 3
        assert result.speedup == pytest.approx(3, rel=0.1)

    @pytest.mark.medium
    def test_a_slow_newcomer_is_built_alone(self):
        store = MemoryStore()
        tune(fake([300, 100, 200], building=True), store=store)
        more = fake([300, 100, 200, 150], building=True)
        result = tune(more, store=store)
        assert more.built == [Config(t=150)]
        assert more.looked == [Config(t=150)]
        assert result.config["t"] == 100
        assert result.statuses == {"outraced": 1}

    @pytest.mark.medium
    def test_a_newcomer_within_the_noise_makes_the_incumbent_be_measured_again(self):
        store = MemoryStore()
        noise = NoiseModel(gaussian=0.01)
        tune(fake([300, 100, 200], building=True, noise=noise), store=store)
        more = fake([300, 100, 200, 99], building=True, noise=noise, seed=1)
        result = tune(more, store=store)
        assert set(more.built) == {Config(t=99), Config(t=100)}
        assert result.config["t"] in (99, 100)
        assert {99, 100} == {trial.config["t"] for trial in result.trials}

    @pytest.mark.medium
    def test_a_newcomer_that_is_far_ahead_wins_without_measuring_the_incumbent(self):
        store = MemoryStore()
        tune(fake([300, 100, 200], building=True), store=store)
        more = fake([300, 100, 200, 50], building=True)
        assert tune(more, store=store).config["t"] == 50
        assert more.built == [Config(t=50)]
        after = fake([300, 100, 200, 50], building=True)
        assert tune(after, store=store).source == "stored"

    @pytest.mark.medium
    def test_a_smaller_space_with_the_same_best_is_answered_from_the_store(self):
        store = MemoryStore()
        tune(fake([300, 100, 200], building=True), store=store)
        less = fake([200, 100], building=True)
        assert tune(less, store=store).config["t"] == 100
        assert less.built == []

    @pytest.mark.medium
    def test_a_smaller_space_without_the_best_still_gets_its_own_best(self):
        store = MemoryStore()
        tune(fake([300, 100, 200, 400], building=True), store=store)
        assert tune(fake([400, 200, 300], building=True), store=store).config["t"] == 200

    def test_other_devices_do_not_answer(self, monkeypatch):
        store = MemoryStore()
        tune(fake([3, 1, 2]), store=store)
        other = fake([3, 1, 2])
        other.name = "another kernel"
        assert tune(other, store=store).source == "tuned"


class TestBudget:
    def test_trials_are_counted(self):
        result = tune(fake(range(1, 101)), store=MemoryStore(), budget="7trials", search="random")
        assert len(result.trials) == 7

    def test_a_larger_budget_goes_on_where_the_smaller_ended(self):
        store = MemoryStore()
        first = tune(fake(range(1, 101)), store=store, budget="7trials", search="random")
        same = tune(fake(range(1, 101)), store=store, budget="7trials", search="random")
        more = tune(fake(range(1, 101)), store=store, budget="20trials", search="random")
        assert same.source == "stored"
        assert len(more.trials) == 20
        tried = {t.config for t in first.trials} & {t.config for t in more.trials}
        assert len(tried) <= 1  # the incumbent, if a newcomer came close to it

    @pytest.mark.medium
    def test_time_ends_a_run_with_the_best_so_far(self):
        def sleepy(config):
            import time

            time.sleep(0.02)
            return micros(config)

        target = FakeTarget({"t": list(range(1000, 0, -1))}, sleepy)
        result = tune(target, store=MemoryStore(), budget="1s")
        assert 1 < len(result.trials) < 1000
        assert result.run.outcome is Outcome.FINISHED
        assert not result.run.exhaustive

    @pytest.mark.slow
    def test_a_large_space_without_a_budget_gets_one_and_says_so(self):
        space = Space({"t": list(range(1, 200)), "u": list(range(100))})
        result = tune(FakeTarget(space, micros), store=MemoryStore())
        assert len(result.trials) == 200
        assert any("200 trials" in note for note in result.notes)


class TestFailing:
    @pytest.mark.medium
    def test_a_rejected_config_is_neither_built_nor_run(self):
        target = fake([1, 2], building=True, reject=lambda c: "too small" if c["t"] == 1 else None)
        result = tune(target, store=MemoryStore())
        assert target.built == [Config(t=2)]
        (rejected,) = [t for t in result.trials if t.status is Status.CONSTRAINT]
        assert rejected.error == "too small"

    def test_one_bad_config_does_not_end_the_run(self):
        def times(config):
            if config["t"] == 1:
                raise ConfigFailure(Status.RESOURCES, "needs 300 KB of 227 KB")
            return micros(config)

        result = tune(FakeTarget([{"t": t} for t in (1, 2, 3)], times), store=MemoryStore())
        assert result.config["t"] == 2
        assert result.statuses == {"resources": 1, "ok": 1, "outraced": 1}

    def test_when_nothing_works_the_run_is_kept_as_failed(self):
        def times(config):
            raise ConfigFailure(Status.RUN_ERROR, "broken")

        store = MemoryStore()
        target = FakeTarget([{"t": 1}, {"t": 2}], times)
        with pytest.raises(whet.TuningFailedError, match=r"2 run_error; first: .t=1. broken"):
            tune(target, store=store)
        (run,) = store.runs(target.workload().id)
        assert run.outcome is Outcome.FAILED
        with pytest.raises(whet.TuningFailedError, match="according to the store"):
            tune(target, store=store)

    def test_what_is_no_target_is_refused(self):
        with pytest.raises(UsageError, match=r"whet\.function"):
            tune(lambda a: a, store=MemoryStore())

    def test_an_unknown_strategy_is_named(self):
        with pytest.raises(UsageError, match="did you mean 'grid'"):
            tune(fake([1]), store=MemoryStore(), search="gird")


class TestReporting:
    @pytest.mark.medium
    def test_events_tell_the_story_in_order(self):
        events = []
        tune(fake([3, 1, 2], building=True), store=MemoryStore(), on_event=events.append)
        kinds = [type(event) for event in events]
        assert kinds[0] is RunStarted
        assert kinds[-1] is RunFinished
        assert kinds.count(BuildStarted) == kinds.count(BuildFinished) == 3
        assert events[0].planned == 3
        best = [event.trial.config["t"] for event in events if type(event) is BestChanged]
        assert best == [3, 1]
        assert kinds.index(BuildFinished) < kinds.index(TrialFinished)

    def test_the_duel_is_announced(self):
        events = []
        tune(fake([100, 101], noise=NOISY), store=MemoryStore(), on_event=events.append)
        kinds = [type(event) for event in events]
        assert kinds.index(DuelStarted) < kinds.index(DuelEnded)

    def test_a_display_that_fails_does_not_matter(self):
        def broken(event):
            raise RuntimeError("no terminal")

        assert tune(fake([2, 1]), store=MemoryStore(), on_event=broken).config["t"] == 1

    @pytest.mark.slow
    def test_the_wall_ledger_sums_to_the_length_of_the_run(self):
        """By a clock of our own: from the first event to the last outcome, and around it all."""
        heard = []

        def listen(event):
            if isinstance(event, RunStarted | TrialFinished):
                heard.append(time.perf_counter())

        target, began = fake(range(1, 60), building=True), time.perf_counter()
        result = tune(target, store=MemoryStore(), jobs=2, on_event=listen)
        around = time.perf_counter() - began
        assert heard[-1] - heard[0] <= sum(result.run.cost.wall.values()) <= around
        assert all(seconds >= 0 for seconds in result.run.cost.wall.values())
        assert result.run.cost.work["build"] > 0

    def test_the_result_as_json_has_what_the_command_line_promises(self):
        data = tune(fake([2, 1], noise=NOISY), store=MemoryStore()).to_json()
        assert data["best"]["config"] == {"t": 1}
        assert data["best"]["median_ns"] < data["first"]["median_ns"]
        assert data["trials"] == 2
        assert set(data["statuses"]) == {"ok", "outraced"}
        assert set(data["cost"]) == set(WALL_PHASES)
        assert data["wall_s"] > 0
        assert data["workload"]["kernel"] == "fake"

    def test_a_run_is_kept_with_its_budget_and_space(self):
        store = MemoryStore()
        target = fake([2, 1])
        tune(target, store=store, budget="50trials", seed=9)
        (run,) = store.runs(target.workload().id)
        assert run.budget == Budget(trials=50)
        assert (run.seed, run.space_id, run.exhaustive) == (9, target.space.id, True)


def test_choose_uses_what_is_known_and_says_where_from():
    store = MemoryStore()
    assert whet.choose(fake([3, 1, 2]), store=store).source == "first"
    tune(fake([3, 1, 2]), store=store)
    exact = whet.choose(fake([3, 1, 2]), store=store)
    assert (exact.source, exact.config) == ("exact", Config(t=1))


@pytest.mark.slow
def test_short_kernels_are_looked_at_together_and_each_failure_stays_its_own():
    def f(a):
        if a == 7:
            raise ValueError("seven")
        if a == 11:
            import os

            os.abort()

    result = tune(whet.function(f, {"a": list(range(40))}, key={}), store=MemoryStore())
    failed = {t.config["a"]: t.error for t in result.trials if t.status is Status.RUN_ERROR}
    assert set(failed) == {7, 11}
    assert "seven" in failed[7]
    assert "SIGABRT" in failed[11]
    assert len(result.trials) == 40


@pytest.mark.medium
def test_configs_that_run_the_same_binary_are_measured_once():
    target = FakeTarget(
        [{"t": t, "flag": f} for t in (300, 100) for f in (0, 1, 2)],
        micros,
        building=True,
        twin=lambda config: config["t"],
    )
    result = tune(target, store=MemoryStore(), search="grid")
    assert {config["t"] for config in target.looked} == {300, 100}
    assert len(target.looked) == 2
    assert len(result.trials) == 6
    reasons = [t.error for t in result.trials if "the same binary as" in t.error]
    assert len(reasons) == 4
