"""A run that gets nowhere says so, and goes on where it can."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from whet.builds.builder import Builder
from whet.builds.job import BuildResult, Built, Job
from whet.core.config import Config
from whet.core.event import Event, MeasureStarted, Noted
from whet.engine import tune
from whet.engine.guard import Shield, Watchdog
from whet.engine.settings import Settings
from whet.engine.steps.record import Recorder
from whet.engine.target import BenchLimits
from whet.measure.bench.protocol import Answer, Bench, Visit
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget
from whet.testing.samples import a_run, a_workload

HALTING = Config(t=7)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A watch with a clock that moves only when told; `said` is what it said."""

    def __init__(self, patience_s: float | None = 300.0) -> None:
        self.clock = Clock()
        self.said: list[str] = []
        self.heard = 0.0
        self.watch = Watchdog(patience_s, self.said.append, lambda: self.heard, self.clock)

    def after(self, seconds: float) -> list[str]:
        """All that has been said so many seconds later."""
        self.clock.now += seconds
        self.watch.check()
        return self.said


def configs() -> Sequence[Config]:
    return [HALTING]


class TestPatience:
    def test_nothing_is_said_while_things_happen(self) -> None:
        watched = Watched()
        for _ in range(10):
            assert watched.after(299.0) == []
            watched.heard = watched.clock.now

    def test_what_is_under_way_may_take_its_own_time_on_top(self) -> None:
        watched = Watched()
        with watched.watch.doing("measuring", configs, 30.0, "kill it"):
            assert watched.after(330.0) == []
            (line,) = watched.after(1.0)
        assert "331 s: measuring [t=7]" in line
        assert line.endswith("with a limit of 30 s; kill it")

    def test_it_is_said_once(self) -> None:
        watched = Watched()
        with watched.watch.doing("measuring", configs, 30.0, "kill it"):
            watched.after(331.0)
            assert len(watched.after(3000.0)) == 1

    def test_what_began_later_has_its_own_time(self) -> None:
        watched = Watched()
        watched.after(200.0)
        with watched.watch.doing("measuring", configs, 30.0, "kill it"):
            assert watched.after(200.0) == []
        assert watched.after(200.0) == []

    def test_a_search_that_does_not_answer_is_noticed_too(self) -> None:
        assert "still choosing" in Watched().after(301.0)[0]

    def test_without_patience_nothing_is_ever_said(self) -> None:
        assert Watched(None).after(1e9) == []

    def test_of_many_configs_a_few_are_named(self) -> None:
        watched = Watched()
        many = [Config(t=t) for t in range(9)]
        with watched.watch.doing("measuring", lambda: many, 30.0, "kill it"):
            assert "[t=3] and 5 more" in watched.after(331.0)[0]

    def test_what_can_be_ended_is_ended_once(self) -> None:
        watched, ended = Watched(), []
        with watched.watch.doing("x", configs, 1.0, "", lambda: ended.append(1)):
            watched.after(302.0)
            watched.after(302.0)
        assert ended == [1]


def test_a_note_is_no_sign_of_progress() -> None:
    """It may be the watchdog's own."""
    recorder = Recorder(MemoryStore(), a_run(a_workload()), [], Shield())
    before = recorder.heard_at
    recorder.note("nothing has happened for 300 s")
    assert recorder.heard_at == before
    recorder.emit(MeasureStarted(HALTING))
    assert recorder.heard_at > before


def impatient() -> Settings:
    return replace(Settings(), stall_timeout_s=0.05, run_limit_s=0.01, build_limit_s=0.01, jobs=1)


class TestRuns:
    def test_a_kernel_that_does_not_return_is_named_and_marked(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It returns once it has been spoken of, so that the test ends."""
        store, said, told = MemoryStore(), threading.Event(), []
        marks: list[bool] = []

        def times(config: Config) -> float:
            if config == HALTING:
                assert said.wait(30.0)
                marks.extend(mark.configs == (HALTING,) for mark in store.marks(workload))
            return 100.0

        def listen(event: Event) -> None:
            if isinstance(event, Noted):
                told.append(event.text)
                said.set()

        target = FakeTarget([{"t": 7}, {"t": 8}], times)
        workload = target.workload().id
        result = tune(target, store=store, settings=impatient(), on_event=listen)
        assert "measuring [t=7]" in told[0]
        assert "process (pid" in told[0]
        assert "no progress" in capsys.readouterr().err
        assert marks == [True]
        assert store.marks(workload) == []
        assert result.notes[0] == told[0]

    @pytest.mark.medium
    def test_builds_that_do_not_end_are_given_up_and_the_rest_decides(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class HalfBuilt(FakeTarget):
            def job(self, config: Config) -> Job | None:
                return Job(Built, (config.id,)) if config == HALTING else None

        def never(self: Builder, timeout: float | None = None) -> list[BuildResult]:
            threading.Event().wait(min(0.01, timeout or 0.0))
            return []

        monkeypatch.setattr(Builder, "ready", never)
        target = HalfBuilt([{"t": 8}, {"t": 7}], lambda config: 100.0, shares_host=False)
        result = tune(target, store=MemoryStore(), settings=impatient())
        assert result.config == Config(t=8)
        assert not result.run.exhaustive
        assert any("building [t=7]" in note and "abandoning" in note for note in result.notes)


class TestLimits:
    def test_every_visit_has_the_limit_that_the_quickest_look_sets(self) -> None:
        visits: list[Visit] = []

        class Limited(FakeTarget):
            def bench(self, limits: BenchLimits) -> Bench:
                bench = super().bench(limits)
                _write_down(bench, visits)
                return bench

        target = Limited([{"t": t} for t in range(60)], lambda config: 100.0 + config["t"])
        tune(target, store=MemoryStore(), settings=Settings(run_limit_s=1000.0), search="grid")
        limits = [visit.limit_s for visit in visits if visit.limit_s is not None]
        assert visits[0].first
        assert len(limits) == len(visits) > 4
        assert limits[0] == 1000.0
        assert any(visit.first and len(visit.built) > 1 for visit in visits)
        assert any(not visit.first and len(visit.built) > 1 for visit in visits)
        assert max(limits[1:]) < 1000.0


def _write_down(bench: Bench, visits: list[Visit]) -> None:
    measure = bench.measure

    def noted(visit: Visit) -> tuple[Answer, ...]:
        visits.append(visit)
        return measure(visit)

    bench.measure = noted  # type: ignore[method-assign]
