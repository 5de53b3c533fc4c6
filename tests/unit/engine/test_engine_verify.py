"""A stored pick, measured again on a device whose kernels take a known time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn, cast

import pytest

from whet.builds.job import Job
from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.timing import Method
from whet.core.workload import Device, Workload
from whet.engine import tune
from whet.engine.review.verify import verify
from whet.store import MemoryStore, Store
from whet.testing.fake_target import FakeTarget
from whet.testing.fakes import NoiseModel

# 32 is the pick; 16 is the author's first.
TIMES = {16: 400_000.0, 32: 100_000.0, 64: 200_000.0}


class Target(FakeTarget):
    """A fake target of a workload that a test may change."""

    def __init__(self, times: Callable[[int], float] | None = None, **changes: Any) -> None:
        self._workload = Workload("fake", "0", Device("fake device", "fake", "f1", "1.0"))
        for name in ("device", "toolchain", "fingerprint", "key"):
            if name in changes:
                self._workload = replace(self._workload, **{name: changes.pop(name)})
        told = times or TIMES.__getitem__
        space = changes.pop("space", {"B": list(TIMES)})
        super().__init__(space, lambda config: told(cast("int", config["B"])), **changes)

    def workload(self) -> Workload:
        return self._workload


def times(**changes: float) -> Callable[[int], float]:
    """`times(b32=1.1)`: config B=32 takes 1.1 times as long as when it was tuned."""
    return lambda b: TIMES[b] * changes.get(f"b{b}", 1.0)


def failing(b: int, status: Status) -> Callable[[int], float]:
    def told(asked: int) -> float:
        if asked == b:
            raise ConfigFailure(status, "not today")
        return TIMES[asked]

    return told


@pytest.fixture
def store() -> Store:
    """What tuning the target left behind."""
    kept = MemoryStore()
    assert tune(Target(noise=NoiseModel(gaussian=0.002)), store=kept).config == Config(B=32)
    return kept


def everything(store: Store) -> list[Any]:
    return [
        (one, store.trials(one.workload.id, all=True), store.runs(one.workload.id))
        for one in store.workloads()
    ]


def test_a_pick_that_is_as_fast_as_it_was_is_ok(store: Store) -> None:
    done = verify(Target(noise=NoiseModel(gaussian=0.002), seed=9), store)

    assert done is not None
    assert (done.verdict, done.failed, done.pick.config) == ("ok", False, Config(B=32))
    assert done.ratio is not None
    assert done.ratio.low <= 1 <= done.ratio.high
    assert done.beats_first is True
    assert done.speedup is not None
    assert done.speedup.mid == pytest.approx(4.0, rel=0.02)


@pytest.mark.medium
def test_only_the_pick_and_the_first_config_are_measured(store: Store) -> None:
    target = Target(building=True)
    verify(target, store)

    assert {config["B"] for config in target.looked} == {16, 32}
    assert {config["B"] for config in target.built} == {16, 32}


def test_nothing_is_written_unless_asked_for(store: Store) -> None:
    before = everything(store)
    verify(Target(times(b32=2.0)), store)

    assert everything(store) == before


def test_more_than_the_allowance_is_slower(store: Store) -> None:
    done = verify(Target(times(b32=1.06)), store)

    assert done is not None
    assert (done.verdict, done.failed) == ("slower", True)
    assert done.ratio is not None
    assert done.ratio.mid == pytest.approx(1.06, rel=0.01)


def test_less_than_the_allowance_is_ok(store: Store) -> None:
    slower = times(b32=1.06)

    assert verdict(Target(slower), store, fail_over=0.10) == "ok"
    assert verdict(Target(times(b32=0.5)), store) == "ok"


def test_what_the_samples_cannot_decide_is_undecided_and_no_failure(store: Store) -> None:
    target = Target(times(b32=1.03), noise=NoiseModel(gaussian=0.10), seed=3)
    done = verify(target, store)

    assert done is not None
    assert (done.verdict, done.failed) == ("undecided", False)


def test_a_pick_that_the_first_config_beats_now_is_told(store: Store) -> None:
    done = verify(Target(times(b16=0.1)), store)

    assert done is not None
    assert (done.verdict, done.beats_first) == ("ok", False)


def test_a_pick_that_is_the_first_config_needs_no_comparison() -> None:
    store, target = MemoryStore(), Target(space={"B": [32, 64]})
    tune(target, store=store)
    done = verify(target, store)

    assert done is not None
    assert (done.verdict, done.speedup, done.beats_first) == ("ok", None, None)


def test_where_everything_is_slower_that_is_said(store: Store) -> None:
    done = verify(Target(times(b16=1.5, b32=1.5)), store)

    assert done is not None
    assert done.verdict == "slower"
    assert "first config takes 1.50×" in done.reason


def test_a_first_config_that_fails_does_not_spoil_the_verdict(store: Store) -> None:
    done = verify(Target(failing(16, Status.RUN_ERROR)), store)

    assert done is not None
    assert (done.verdict, done.speedup) == ("ok", None)
    assert done.reason.endswith(" first config fails: not today")


@pytest.mark.parametrize("status", [Status.RUN_ERROR, Status.WRONG_RESULT, Status.RUN_TIMEOUT])
def test_a_pick_that_no_longer_runs_fails(store: Store, status: Status) -> None:
    done = verify(Target(failing(32, status)), store)

    assert done is not None
    assert (done.verdict, done.failed) == ("fails", True)
    assert done.reason == f"{status}: not today"


@pytest.mark.medium
def test_a_pick_that_no_longer_builds_is_said_to(store: Store) -> None:
    class Broken(Target):
        def job(self, config: Config) -> Job | None:
            return Job(_refuse, (config["B"],))

    done = verify(Broken(), store)

    assert done is not None
    assert (done.verdict, done.failed) == ("cannot be built", True)
    assert "no such instruction for 32" in done.reason


def _refuse(b: int) -> NoReturn:
    raise ConfigFailure(Status.BUILD_ERROR, f"no such instruction for {b}")


def test_a_pick_that_breaks_a_rule_of_today_cannot_be_built(store: Store) -> None:
    target = Target(reject=lambda config: "too large" if config["B"] == 32 else None)

    assert verdict(target, store) == "cannot be built"


def test_a_pick_that_is_no_longer_offered_cannot_be_built(store: Store) -> None:
    done = verify(Target(space={"B": [16, 64]}), store)

    assert done is not None
    assert done.verdict == "cannot be built"
    assert "this config" in done.reason


def test_without_a_stored_result_there_is_nothing_to_verify() -> None:
    target = Target()

    assert verify(target, MemoryStore()) is None
    assert target.looked == []


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"toolchain": FrozenMap({"cc": "13"})}, ("toolchain",)),
        ({"fingerprint": "1"}, ("fingerprint",)),
        ({"device": Device("fake device", "fake", "f1", "2.0")}, ("device",)),
    ],
)
def test_the_result_of_an_older_toolchain_or_driver_is_verified_and_named(
    store: Store, changes: dict[str, Any], differs: tuple[str, ...]
) -> None:
    done = verify(Target(**changes), store)

    assert done is not None
    assert (done.verdict, done.differs) == ("ok", differs)


@pytest.mark.parametrize(
    "changes",
    [
        {"device": Device("other device", "fake", "f1", "1.0")},
        {"device": Device("fake device", "fake", "f2", "1.0")},
        {"key": FrozenMap({"M": 64})},
    ],
)
def test_the_result_of_another_device_or_key_is_not(store: Store, changes: dict[str, Any]) -> None:
    assert verify(Target(**changes), store) is None


def test_what_was_timed_in_another_way_is_not_compared(store: Store) -> None:
    best = store.best(Target().workload().id)
    assert best is not None
    assert best.timing is not None
    assert best.timing.method == Method("cpu")
    store.append([best.superseded_by(timing=replace(best.timing, timer="cuda", l2="cold"))])
    done = verify(Target(), store)

    assert done is not None
    assert (done.verdict, done.ratio) == ("undecided", None)
    assert "different ways" in done.reason
    assert done.beats_first is True


def test_what_is_recorded_is_the_latest_of_its_config(store: Store) -> None:
    done = verify(Target(times(b32=1.1)), store, record=True)

    assert done is not None
    best = store.best(done.workload.id)
    assert best is not None
    assert (best.config, best.timing) == (Config(B=32), done.now)
    first = store.latest(done.workload.id, Config(B=16).id)
    assert first is not None
    assert (first.status, first.timing) == (Status.OUTRACED, done.first_now)


def test_a_recorded_failure_is_no_longer_the_best(store: Store) -> None:
    verify(Target(failing(32, Status.WRONG_RESULT)), store, record=True)

    latest = store.latest(Target().workload().id, Config(B=32).id)
    assert latest is not None
    assert (latest.status, latest.error) == (Status.WRONG_RESULT, "not today")
    best = store.best(Target().workload().id)
    assert best is None or best.config != Config(B=32)


def test_under_a_new_toolchain_it_is_recorded_as_that_ones(store: Store) -> None:
    newer = Target(toolchain=FrozenMap({"cc": "13"}))
    verify(newer, store, record=True)

    best = store.best(newer.workload().id)
    assert best is not None
    assert best.config == Config(B=32)
    again = verify(newer, store)
    assert again is not None
    assert again.differs == ()


def verdict(target: Target, store: Store, **asked: Any) -> str:
    done = verify(target, store, **asked)
    assert done is not None
    return done.verdict
