"""Schedules that are built and measured in copies of the process that tunes them.

It has loaded MLIR already, which takes a new process half a second. What a worker that starts from
nothing does is for the tests that leave this alone.
"""

from __future__ import annotations

import pytest

from whet.engine.target import BenchLimits
from whet.measure.bench.protocol import Bench
from whet.measure.bench.remote import RemoteBench
from whet.targets.native.loader import NativeLoader
from whet.targets.schedule.target import ScheduleTarget


def in_copies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ScheduleTarget, "build_mode", "fork")
    patch.setattr(ScheduleTarget, "bench", _bench)


def _bench(target: ScheduleTarget, limits: BenchLimits) -> Bench:
    loader = NativeLoader(
        target.args, target.expected, target.rtol, target.atol, target.compared_bits
    )
    return RemoteBench(lambda: loader, target.make_timer, "fork", limits.memory_bytes)
