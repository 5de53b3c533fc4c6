"""Which builds are started, in which order, and which are given up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from whet.builds import builder
from whet.builds.job import Built, Job
from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.event import BuildFinished, BuildStarted, DuelEnded, Event, Measured
from whet.core.frozen import FrozenMap
from whet.core.run import Result
from whet.core.status import Limit, Status
from whet.core.workload import Workload
from whet.engine import Plan, tune
from whet.engine.settings import Settings
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget
from whet.workers.stages import stage

FOREVER_S = 600.0


def micros(config: Any) -> float:
    return float(1000 * config["t"])


class BuildingTarget(FakeTarget):
    """Every config is built in a worker, where it takes `build_s(config)`."""

    def __init__(
        self,
        space: Any,
        build_s: Callable[[Config], float] = lambda config: 0.0,
        *,
        identity: Callable[[Config], str | None] = lambda config: None,
        refused: Callable[[Config], bool] = lambda config: False,
        name: str = "fake",
    ) -> None:
        super().__init__(space, micros, building=True)
        self.name = name
        self.shares_host = False
        self._build_s = build_s
        self._identity = identity
        self._refused = refused

    def job(self, config: Config) -> Job:
        return Job(self._build, (config,), self._identity(config))

    def _build(self, config: Config) -> Built:
        with stage("compile"):
            time.sleep(self._build_s(config))
        if self._refused(config):
            raise ConfigFailure(Status.RESOURCES, "too much shared memory")
        return Built(config.id)


def tuned(target: FakeTarget, jobs: int = 2, **options: Any) -> tuple[Result, list[Event]]:
    events: list[Event] = []
    options = {"store": MemoryStore(), "search": "grid", **options}
    return tune(target, jobs=jobs, on_event=events.append, **options), events


def started(events: list[Event]) -> list[Any]:
    return [event.config["t"] for event in events if isinstance(event, BuildStarted)]


def outcome(result: Result, t: int) -> Any:
    (trial,) = [trial for trial in result.trials if trial.config["t"] == t]
    return trial


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "FLOOR_S", 0.2)


def endless(config: Config) -> float:
    return FOREVER_S if config["t"] == 7 else 0.01


@pytest.mark.medium
@pytest.mark.usefixtures("impatient")
def test_a_build_that_takes_many_times_longer_than_good_ones_is_cut() -> None:
    target = BuildingTarget([{"t": t} for t in (1, 7, 2, 3, 4)], endless)
    result, _ = tuned(target, settings=Settings(build_limit_s=300.0))
    cut = outcome(result, 7)
    assert cut.status is Status.BUILD_TIMEOUT
    assert cut.error.startswith("stopped after ")
    assert cut.limit == Limit("build_s", 300.0)
    assert result.config["t"] == 1


@pytest.mark.medium
@pytest.mark.usefixtures("impatient")
def test_a_later_run_with_the_same_limit_does_not_try_it_again() -> None:
    store, settings = MemoryStore(), Settings(build_limit_s=300.0)
    for _ in range(2):
        target = BuildingTarget([{"t": t} for t in (1, 7, 2, 3, 4)], endless)
        result, events = tuned(target, store=store, settings=settings)
    assert result.source == "stored"
    assert started(events) == []


@pytest.mark.medium
@pytest.mark.usefixtures("impatient")
def test_the_authors_first_config_is_not_cut() -> None:
    def slow_first(config: Config) -> float:
        return 0.8 if config["t"] == 7 else 0.01

    target = BuildingTarget([{"t": t} for t in (7, 1, 2, 3, 4)], slow_first)
    result, _ = tuned(target)
    assert result.first is not None
    assert outcome(result, 7).status is Status.OUTRACED


@pytest.mark.medium
@pytest.mark.usefixtures("impatient")
def test_nothing_is_cut_where_every_config_gets_the_same_samples() -> None:
    def slow(config: Config) -> float:
        return 0.8 if config["t"] == 7 else 0.01

    target = BuildingTarget([{"t": t} for t in (1, 7, 2, 3, 4)], slow)
    result, _ = tuned(target, plan=Plan.fixed(2))
    assert outcome(result, 7).status is Status.OK


@pytest.mark.medium
def test_what_was_refused_for_one_key_is_not_built_for_the_next() -> None:
    def target(name: str) -> BuildingTarget:
        return BuildingTarget(
            [{"t": t} for t in (1, 2, 3, 4)],
            identity=lambda config: f"refused twice {config.id}",
            refused=lambda config: config["t"] in (3, 4),
            name=name,
        )

    _, first = tuned(target("one key"))
    result, second = tuned(target("another key"))
    assert sorted(started(first)) == [1, 2, 3, 4]
    assert started(second) == []
    assert not any(isinstance(event, BuildFinished) for event in second)
    refused = outcome(result, 3)
    assert (refused.status, refused.error) == (Status.RESOURCES, "too much shared memory")
    assert "build" not in refused.cost.work


@pytest.mark.medium
def test_a_binary_of_several_keys_is_built_once() -> None:
    def target(name: str) -> BuildingTarget:
        space = [{"t": t} for t in (1, 2, 3)]
        return BuildingTarget(space, identity=lambda config: f"built {config.id}", name=name)

    _, first = tuned(target("a key"))
    result, second = tuned(target("the next key"))
    assert sorted(started(first)) == [1, 2, 3]
    assert started(second) == []
    assert result.config["t"] == 1


@pytest.mark.medium
def test_a_device_that_is_elsewhere_measures_while_the_pool_builds(tmp_path: Path) -> None:
    measured = tmp_path / "measured"

    class WaitingTarget(BuildingTarget):
        def _build(self, config: Config) -> Built:
            while config["t"] == 2 and not measured.exists():
                time.sleep(0.01)
            return Built(config.id)

    def note(event: Event) -> None:
        if isinstance(event, Measured):
            measured.touch()

    target = WaitingTarget([{"t": t} for t in (1, 2)])
    result = tune(
        target,
        jobs=2,
        store=MemoryStore(),
        search="grid",
        on_event=note,
        settings=Settings(build_limit_s=30.0),
    )
    assert outcome(result, 2).status.measured


@pytest.mark.medium
def test_where_builds_and_runs_share_the_cores_nothing_is_measured_beside_a_build() -> None:
    target = BuildingTarget([{"t": t} for t in (1, 2, 3, 4, 5, 6)], lambda config: 0.02)
    target.shares_host = True
    _, events = tuned(target)
    under_way = 0
    for event in events:
        under_way += isinstance(event, BuildStarted) - isinstance(event, BuildFinished)
        assert not isinstance(event, Measured) or under_way == 0


def ramp(config: Any) -> float:
    return float(1000 * (100 - 3 * config["a"]))


@pytest.mark.slow
def test_what_other_keys_found_good_and_cheap_is_built_first() -> None:
    space = {"a": list(range(30)), "t": [100]}

    class Ramp(BuildingTarget):
        """The larger `a`, the faster."""

        def __init__(self, key: str, build_s: float) -> None:
            super().__init__(space, lambda config: build_s)
            self.times = ramp
            self.key = key

        def workload(self) -> Workload:
            return replace(super().workload(), key=FrozenMap({"n": self.key}))

    store = MemoryStore()
    tuned(Ramp("small", 0.0), store=store)
    _, events = tuned(Ramp("large", 0.02), store=store, jobs=8)
    order: list[Any] = [e.config["a"] for e in events if isinstance(e, BuildStarted)]
    assert sorted(order) == list(range(30))
    assert order[0] == 0
    assert sum(order[8:16]) > sum(order[-8:])


@pytest.mark.medium
def test_a_finished_build_says_where_and_when_it_ran_and_what_its_stages_took() -> None:
    before = time.monotonic()
    _, events = tuned(BuildingTarget([{"t": t} for t in (1, 2, 3)], lambda config: 0.01))
    builds = [event for event in events if isinstance(event, BuildFinished)]
    assert len(builds) == 3
    for build in builds:
        assert build.worker in (0, 1)
        assert before <= build.started <= time.monotonic()
        assert build.stages["compile"] >= 0.01
        assert (build.ok, build.status) == (True, Status.OK)


@pytest.mark.medium
def test_every_visit_to_the_bench_is_reported() -> None:
    _, events = tuned(BuildingTarget([{"t": t} for t in (100, 101, 500)]))
    visits = [event for event in events if isinstance(event, Measured)]
    looked = [config["t"] for visit in visits if visit.kind == "look" for config in visit.configs]
    assert set(looked) == {100, 101, 500}
    assert len(looked) == 3
    assert {visit.kind for visit in visits} >= {"look", "round"}
    for visit in visits:
        assert visit.started <= visit.ended
        assert set(visit.seconds) <= {"load", "check", "warmup", "measure"}
        assert sum(visit.seconds.values()) <= visit.ended - visit.started + 1e-3


@pytest.mark.medium
@pytest.mark.parametrize(("micros", "together"), [(100, True), (30_000, False)])
def test_rounds_of_a_duel_share_a_visit_where_kernels_are_short(
    micros: int, together: bool
) -> None:
    target = BuildingTarget([{"t": t} for t in (micros, micros + 1)])
    result, events = tuned(target)
    (duel,) = [event for event in events if isinstance(event, DuelEnded)]
    visits = [e for e in events if isinstance(e, Measured) and e.kind == "round"]
    assert (len(visits) < duel.rounds) == together
    samples = {len(trial.timing.samples) for trial in result.trials if trial.timing is not None}
    assert min(samples) >= Plan().race.first_samples + duel.rounds


def test_a_hopeless_config_gets_no_samples_beyond_its_warm_up() -> None:
    target = FakeTarget([{"t": t} for t in (10, 1000)], micros)
    result, _ = tuned(target)
    slow = outcome(result, 1000)
    assert slow.status is Status.OUTRACED
    assert (len(slow.timing.samples), slow.timing.quality) == (1, "contaminated")


def test_a_fixed_plan_samples_hopeless_configs_too() -> None:
    target = FakeTarget([{"t": t} for t in (10, 1000)], micros)
    result, _ = tuned(target, plan=Plan.fixed(4))
    assert len(outcome(result, 1000).timing.samples) == 4
