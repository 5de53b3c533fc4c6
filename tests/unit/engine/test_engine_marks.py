"""What is written down before a config first runs in this process, and what a run does about it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace

import pytest

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.process import Mark, ProcessName, lives, this_process
from whet.core.run import Outcome, Run
from whet.core.status import Status
from whet.engine import crash_report, guard, tune
from whet.engine.guard import DeviceLostError
from whet.engine.target import BenchLimits
from whet.measure.bench.protocol import Bench
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget
from whet.testing.samples import a_run

GONE = ProcessName(this_process().host, this_process().boot, 2**22 + 1, 1)
LOST = ConfigFailure(Status.RUN_ERROR, "CUDA error: an illegal memory access", spoils=True)


@pytest.fixture(autouse=True)
def _no_device_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_lost", {})


def config(t: int) -> Config:
    return Config(t=t)


class Target(FakeTarget):
    """`on_run` is called with a config that is about to run, and what it may do it may do."""

    def __init__(
        self, times: list[int], on_run: Callable[[Config], None] = lambda config: None
    ) -> None:
        def time_of(one: Config) -> float:
            on_run(one)
            return 1000.0 * one["t"]

        super().__init__([{"t": t} for t in times], time_of)
        self.asked: list[BenchLimits] = []
        self.in_process = True

    def bench(self, limits: BenchLimits) -> Bench:
        self.asked.append(limits)
        bench = super().bench(limits)
        bench.in_process = self.in_process  # type: ignore[misc]
        return bench


def left_behind(
    store: MemoryStore, target: Target, *times: int, spoiled: bool = False, **changes: object
) -> Run:
    """The run and the mark of a process that died while these configs first ran."""
    run = a_run(target.workload(), None, outcome=Outcome.RUNNING, started=100.0)
    store.save_run(run)
    configs = tuple(config(t) for t in times)
    mark = Mark(target.workload().id, run.id, configs, GONE, at=107.0, spoiled=spoiled)
    store.mark(replace(mark, **changes))  # type: ignore[arg-type]
    return run


class TestMarking:
    def test_a_config_is_marked_while_it_first_runs_and_not_afterwards(self) -> None:
        store = MemoryStore()
        seen: list[tuple[Config, list[Mark]]] = []
        target = Target([100, 200], lambda one: seen.append((one, store.marks(workload))))
        workload = target.workload().id
        result = tune(target, store=store)
        first, marks = seen[0]
        assert marks == [Mark(workload, result.run.id, (first,), this_process(), marks[0].at)]
        assert store.marks(workload) == []

    def test_configs_that_are_looked_at_together_are_marked_together(self) -> None:
        store = MemoryStore()
        seen: list[list[Mark]] = []
        target = Target(list(range(1, 40)), lambda one: seen.append(store.marks(workload)))
        workload = target.workload().id
        tune(target, store=store)
        assert max(len(marks[0].configs) for marks in seen if marks) > 1

    def test_a_config_that_fails_leaves_no_mark(self) -> None:
        def refuse(one: Config) -> None:
            if one["t"] == 200:
                raise ConfigFailure(Status.RUN_ERROR, "no")

        store, target = MemoryStore(), Target([100, 200], refuse)
        tune(target, store=store)
        assert store.marks(target.workload().id) == []

    def test_an_interrupt_leaves_no_mark(self) -> None:
        def interrupt(one: Config) -> None:
            raise KeyboardInterrupt

        store, target = MemoryStore(), Target([100, 200], interrupt)
        with pytest.raises(KeyboardInterrupt):
            tune(target, store=store)
        assert store.marks(target.workload().id) == []

    def test_what_runs_in_another_process_is_not_marked(self) -> None:
        store = MemoryStore()
        seen: list[Mark] = []
        target = Target([100, 200], lambda one: seen.extend(store.marks(workload)))
        workload = target.workload().id
        target.in_process = False
        tune(target, store=store)
        assert seen == []


class TestProcesses:
    def test_this_process_lives(self) -> None:
        assert lives(this_process())

    def test_another_start_time_is_another_process(self) -> None:
        assert lives(replace(this_process(), started=1)) is False

    def test_nothing_has_lived_through_a_boot(self) -> None:
        assert lives(replace(this_process(), boot="earlier")) is False

    def test_of_another_host_nothing_is_known(self) -> None:
        assert lives(replace(this_process(), host="elsewhere")) is None

    def test_a_process_that_ended_is_dead_even_before_anybody_waits_for_it(self) -> None:
        child = subprocess.Popen(["/bin/true"])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert lives(replace(this_process(), pid=child.pid)) is False
        child.wait()

    def test_a_mark_from_another_host_counts_after_a_day(self) -> None:
        store, target = MemoryStore(), Target([100, 200])
        elsewhere = replace(GONE, host="elsewhere")
        left_behind(store, target, 200, process=elsewhere)
        workload = target.workload().id
        assert not crash_report.examine(store, workload, now=lambda: 107.0 + 3600).suspects
        assert crash_report.examine(store, workload, now=lambda: 107.0 + 90_000).suspects


class TestAfterACrash:
    def test_whoever_ran_alone_has_failed_and_is_skipped(self) -> None:
        store, target = MemoryStore(), Target([100, 50, 200])
        died = left_behind(store, target, 50)
        result = tune(target, store=store)
        assert result.config == config(100)
        assert config(50) not in target.looked
        (trial,) = [t for t in store.trials(result.run.workload.id) if t.config == config(50)]
        assert trial.status is Status.RUN_ERROR
        assert "died" in trial.error
        assert died.id[:8] in trial.error
        assert any("skipping [t=50]" in note for note in result.notes)
        assert store.marks(result.run.workload.id) == []

    def test_the_run_that_died_is_no_longer_running(self) -> None:
        store, target = MemoryStore(), Target([100, 50])
        died = left_behind(store, target, 50)
        tune(target, store=store)
        ended = store.run(died.id)
        assert ended is not None
        assert ended.outcome is Outcome.INTERRUPTED
        assert (ended.trials, ended.wall_s) == (0, 7.0)

    def test_the_mark_of_a_process_that_lives_says_nothing(self) -> None:
        store, target = MemoryStore(), Target([100, 50])
        left_behind(store, target, 50, process=this_process())
        assert tune(target, store=store).config == config(50)

    def test_isolation_is_asked_for_where_several_may_have_done_it(self) -> None:
        store, target = MemoryStore(), Target([100, 50, 200])
        left_behind(store, target, 50, 200)
        target.in_process = False
        result = tune(target, store=store)
        assert [limits.isolate for limits in target.asked] == [True]
        assert result.config == config(50)
        assert any("separate process" in note for note in result.notes)
        assert store.marks(result.run.workload.id) == []

    def test_whoever_ran_alone_is_not_blamed_where_another_process_can_tell(self) -> None:
        store, target = MemoryStore(), Target([100, 50, 200])
        left_behind(store, target, 50)
        target.in_process = False
        result = tune(target, store=store)
        assert result.config == config(50)
        assert store.marks(result.run.workload.id) == []

    def test_in_this_process_suspects_come_last_and_one_at_a_time(self) -> None:
        store = MemoryStore()
        alone: list[tuple[Config, tuple[Config, ...]]] = []

        def watch(one: Config) -> None:
            own = [mark for mark in store.marks(workload) if mark.process == this_process()]
            alone.extend((one, mark.configs) for mark in own)

        target = Target(list(range(1, 30)), watch)
        workload = target.workload().id
        left_behind(store, target, 1, 2, 3)
        result = tune(target, store=store)
        assert [one["t"] for one in target.looked[:29]][-3:] == [1, 2, 3]
        suspects = [configs for one, configs in alone if one["t"] <= 3]
        assert all(len(configs) == 1 for configs in suspects)
        assert result.config == config(1)
        assert store.marks(workload) == []

    def test_who_is_found_out_clears_those_it_ran_with(self) -> None:
        store, target = MemoryStore(), Target([100, 50, 200])
        left_behind(store, target, 50, 200)
        left_behind(store, target, 200)
        result = tune(target, store=store)
        assert config(200) not in target.looked
        assert result.config == config(50)

    def test_suspects_that_were_not_reached_stay_suspects(self) -> None:
        store, target = MemoryStore(), Target([100, 50, 200])
        left_behind(store, target, 50, 200)
        tune(target, store=store, budget="1trials")
        assert len(store.marks(target.workload().id)) == 1


class TestASpoiltContext:
    @staticmethod
    def spoiling(t: int) -> Callable[[Config], None]:
        def run(one: Config) -> None:
            if one["t"] == t:
                raise LOST

        return run

    def test_a_config_that_ran_alone_has_failed_and_the_run_ends(self) -> None:
        store, target = MemoryStore(), Target([100, 50], self.spoiling(50))
        with pytest.raises(DeviceLostError, match=r"\[t=50\].*illegal memory access.*isolate=True"):
            tune(target, store=store, search="grid")
        workload = target.workload().id
        trials = {trial.config: trial.status for trial in store.trials(workload)}
        assert trials == {config(100): Status.OK, config(50): Status.RUN_ERROR}
        assert store.runs(workload)[0].outcome is Outcome.INTERRUPTED

    def test_the_run_after_it_asks_for_another_process(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, target = MemoryStore(), Target([100, 50], self.spoiling(50))
        with pytest.raises(DeviceLostError):
            tune(target, store=store, search="grid")
        monkeypatch.setattr(guard, "_lost", {})  # as it is in a new process
        later = Target([100, 50, 200])
        later.in_process = False
        assert tune(later, store=store, search="grid").config == config(100)
        assert [limits.isolate for limits in later.asked] == [True]
        assert config(50) not in later.looked
        assert store.marks(target.workload().id) == []

    def test_the_best_so_far_is_in_the_error(self) -> None:
        target = Target([100, 200], self.spoiling(200))
        with pytest.raises(DeviceLostError) as lost:
            tune(target, store=MemoryStore(), search="grid")
        assert lost.value.result is not None
        assert lost.value.result.config == config(100)

    def test_of_several_nobody_is_blamed_and_all_are_suspects(self) -> None:
        store, target = MemoryStore(), Target(list(range(1, 30)), self.spoiling(25))
        with pytest.raises(DeviceLostError, match="which config it was"):
            tune(target, store=store, search="grid")
        workload = target.workload().id
        (mark,) = store.marks(workload)
        assert mark.spoiled
        assert config(25) in mark.configs
        assert not any(trial.status.failed for trial in store.trials(workload))

    def test_the_next_process_finds_out_who_it_was(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store, target = MemoryStore(), Target(list(range(1, 30)), self.spoiling(25))
        for _ in range(2):
            monkeypatch.setattr(guard, "_lost", {})  # as it is in a new process
            with pytest.raises(DeviceLostError):
                tune(target, store=store, search="grid")
        monkeypatch.setattr(guard, "_lost", {})
        result = tune(target, store=store, search="grid")
        failed = [t.config for t in store.trials(result.run.workload.id) if t.status.failed]
        assert failed == [config(25)]
        assert result.config == config(1)

    def test_this_process_is_told_at_once_what_it_can_no_longer_do(self) -> None:
        store, target = MemoryStore(), Target([100, 50], self.spoiling(50))
        other = Target([7, 8])
        other.name = "other"
        with pytest.raises(DeviceLostError):
            tune(target, store=store, search="grid")
        with pytest.raises(DeviceLostError, match=r"\[t=50\] of 'fake'"):
            tune(other, store=store)
        assert other.looked == []
        assert store.runs(other.workload().id)[0].outcome is Outcome.INTERRUPTED

    def test_another_process_can_still_measure(self) -> None:
        store, target = MemoryStore(), Target([100, 50], self.spoiling(50))
        with pytest.raises(DeviceLostError):
            tune(target, store=store, search="grid")
        target.in_process = False
        assert tune(target, store=store, search="grid").config == config(100)
