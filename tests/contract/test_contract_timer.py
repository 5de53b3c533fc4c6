"""Every timer, held to the contract."""

from __future__ import annotations

import time

import pytest

from whet.measure import Runnable, Timer
from whet.measure.timers import CpuTimer
from whet.testing.fakes import FakeDevice
from whet.testing.timer_kit import ExactTimerContract, TimerContract


class TestCpuTimerOnAFakeClock(ExactTimerContract):
    @pytest.fixture(autouse=True)
    def _device(self) -> None:
        self.device = FakeDevice()

    def make(self) -> Timer:
        clock = self.device.clock
        return CpuTimer(clock, clock.cpu, cpu_resolution_ns=1)

    def kernel(self, ns: float) -> Runnable:
        return self.device.kernel(ns)


class Sleeper:
    def __init__(self, ns: float) -> None:
        self._seconds = ns / 1e9

    def repeat(self, n: int) -> None:
        for _ in range(n):
            time.sleep(self._seconds)


class TestCpuTimerOnTheRealClock(TimerContract):
    def make(self) -> Timer:
        return CpuTimer()

    def kernel(self, ns: float) -> Runnable:
        return Sleeper(ns)
