"""The engine's side of this room keeps the contracts every target and timer keeps."""

import time

from whet.autotuner.target import CallableTarget, PlainChoices
from whet.autotuner.timers import HostTimer
from whet.testing.target_kit import TargetContract
from whet.testing.timer_kit import TimerContract


class _Waiting:
    def __init__(self, ns: float) -> None:
        self._seconds = ns / 1e9

    def repeat(self, n: int) -> None:
        time.sleep(n * self._seconds)


class TestHostTimer(TimerContract):
    def make(self) -> HostTimer:
        return HostTimer(warmup_runs=2)

    def kernel(self, ns: float) -> _Waiting:
        return _Waiting(ns)


class TestCallableTarget(TargetContract):
    def make_target(self) -> CallableTarget:
        choices = PlainChoices({"wait_ms": [2, 0]})
        return CallableTarget(
            name="wait",
            kernel_fn=lambda wait_ms: time.sleep(wait_ms / 1e3),
            choices=choices,
            space=choices.space,
            timer=HostTimer(warmup_runs=1),
            args=(),
            kwargs={},
        )
