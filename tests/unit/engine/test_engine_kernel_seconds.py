"""Seconds that the device spent in the kernels themselves, where a timer tells them apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from whet.core.trial import WALL_PHASES
from whet.engine import tune
from whet.engine.guard import WallLedger
from whet.engine.target import BenchLimits
from whet.measure import Reading, Runnable, Warm
from whet.measure.bench.executor import LocalBench
from whet.measure.bench.protocol import Bench
from whet.measure.timers import CpuTimer
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget


def micros(config: Any) -> float:
    return float(1000 * config["t"])


class Telling:
    """Every warm-up took the device 1 ms and every reading 2 ms."""

    name = "cpu"

    def __init__(self, inner: CpuTimer) -> None:
        self._inner = inner
        self.readings = 0

    def warm(self, run: Runnable) -> Warm:
        return replace(self._inner.warm(run), kernel_s=0.001)

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        self.readings += 1
        return replace(
            self._inner.measure(run, samples, warm), kernel_s=0.002, remarks=("it is hot in here",)
        )


class TellingTarget(FakeTarget):
    def bench(self, limits: BenchLimits) -> Bench:
        clock = self.device.clock
        self.timer = Telling(CpuTimer(clock, clock.cpu, cpu_resolution_ns=1))
        return LocalBench(self, self.timer)


def test_they_are_parts_of_their_phases_in_the_work_ledger_and_none_of_the_wall() -> None:
    target = TellingTarget([{"t": t} for t in (10, 11, 12)], micros)
    cost = tune(target, store=MemoryStore()).run.cost
    assert cost.work["warmup.kernel"] == pytest.approx(0.003)
    assert cost.work["measure.kernel"] == pytest.approx(0.002 * target.timer.readings)
    whole = {name: seconds for name, seconds in cost.work.items() if "." not in name}
    assert cost.work_s == pytest.approx(sum(whole.values()))
    assert set(cost.wall) == set(WALL_PHASES)


def test_what_a_timer_remarks_becomes_a_note_once() -> None:
    result = tune(TellingTarget([{"t": t} for t in (10, 11)], micros), store=MemoryStore())
    assert result.notes.count("it is hot in here") == 1


def test_the_wall_ledger_counts_a_phase_once() -> None:
    now = 0.0
    ledger = WallLedger(lambda: now)
    parts: dict[str, float] = {}
    with ledger.measuring(parts):
        parts.update({"measure": 2.0, "measure.kernel": 1.5, "warmup": 1.0, "warmup.kernel": 0.9})
        now = 4.0
    wall = ledger.close()
    assert (wall["measure"], wall["load"], sum(wall.values())) == (3.0, 1.0, 4.0)
