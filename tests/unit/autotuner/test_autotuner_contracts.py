"""The engine's side of this room keeps the contract every target keeps."""

import time
from collections import Counter

from whet.autotuner.tuner import CallableTarget, PlainChoices, find_place
from whet.measure.timers import CpuTimer
from whet.testing.target_kit import TargetContract

calls: Counter[int] = Counter()


def wait(wait_ms: int) -> None:
    calls[wait_ms] += 1
    time.sleep(wait_ms / 1e3)


def waiting(warmup_runs: int = 0) -> CallableTarget:
    choices = PlainChoices({"wait_ms": [2, 0]})
    return CallableTarget(
        fn=wait,
        space=choices.space,
        name="wait",
        choices=choices,
        runs_on=find_place("cpu", wait, ()),
        timer=CpuTimer(),
        warmup_runs=warmup_runs,
    )


class TestCallableTarget(TargetContract):
    def make_target(self) -> CallableTarget:
        return waiting()


def test_a_config_is_called_as_often_as_asked_before_the_timers_own_warm_up() -> None:
    for warmup_runs, expected in ((0, 1), (1, 1), (5, 5)):
        target = waiting(warmup_runs)
        assert target.space.first is not None
        loaded = target.load(target.space.first, None)
        calls.clear()
        loaded.first_call()
        assert loaded.check().ok
        assert calls == {2: expected}
