"""A timer that shares nothing with whet's: it judges what tuners pick.

    times = time_many({"a": launch_a, "b": launch_b}, samples=30)     # microseconds, by name
    means = {name: trimmed_mean(taken) for name, taken in times.items()}

A sleeping kernel holds the device while a batch is queued, and an event after it tells whether the
device woke too early; such a batch is taken again with a longer sleep. Before each sample a buffer
of twice the L2 is read, which leaves no dirty lines to write back, and before that an operation has
more blocks than fit at once, so that the sample's grid begins in any place of the device (see
`places.py`). Every reading contains what two events cost, about 2 µs, the same for all: see
`EVENTS_US`.

What counts is the mean: that is what a program waits for, and where a kernel has two speeds, by the
place it begins in, a median is one or the other by a hair.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

Launch = Callable[[], Any]

# With more launches behind it in the queue a reading has half a microsecond too much.
BATCH = 4
ATTEMPTS = 5
SLEEP_FLOOR_US = 50.0
SLEEP_MARGIN = 1.5
FIRST_HOST_US = 150.0

# An addition to so many bytes has more blocks than fit at once: 8 MB on an H200 had not, 16 had.
MOVING_BYTES = 32 << 20

# Some 40 ms of work before the first sample: an idle device has a slower clock.
WAKING_READS = 1000

# What a reading has too much, on an H200 against a profiler: 2.0 to 2.5 µs. It hides part of the
# difference between two short kernels, so ratios are also given with this taken off.
EVENTS_US = 2.0

# Of readings that come in order of size, at either end: where the host or the device hiccuped.
TRIMMED = 0.1


class QueueRanDryError(RuntimeError):
    """The host is too slow or too busy to keep the device waiting."""


class Referee:
    """`discarded` counts samples of batches whose queue ran dry."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._cuda = torch.cuda
        properties = torch.cuda.get_device_properties(0)
        self._cycles_per_us = (getattr(properties, "clock_rate", 0) or 2_000_000) / 1000
        self._read = torch.ones(2 * properties.L2_cache_size // 4, device="cuda")
        self._sum = torch.zeros((), device="cuda")
        self._moving = torch.zeros(MOVING_BYTES // 4, device="cuda")
        self._gate = torch.cuda.Event()
        self._events: list[tuple[Any, Any]] = []
        self._host_us = FIRST_HOST_US
        self.discarded = 0
        for _ in range(WAKING_READS):
            torch.sum(self._read, dim=0, out=self._sum)

    def batch(self, launches: Sequence[Launch], *, cold: bool) -> list[float]:
        """Microseconds of each launch, one after another from one full queue."""
        sleep_us = SLEEP_FLOOR_US + SLEEP_MARGIN * self._host_us * len(launches)
        for _ in range(ATTEMPTS):
            times = self._queued(launches, sleep_us, cold)
            if times is not None:
                return times
            self.discarded += len(launches)
            sleep_us *= 2
        raise QueueRanDryError(
            f"the queue ran dry {ATTEMPTS} times: the host is too slow or too busy"
        )

    def _queued(
        self, launches: Sequence[Launch], sleep_us: float, cold: bool
    ) -> list[float] | None:
        pairs = self._pairs(len(launches))
        # Recording without a stream looks the current one up, which takes 12 µs.
        stream = self._cuda.current_stream()
        self._cuda._sleep(int(sleep_us * self._cycles_per_us))
        self._gate.record(stream)
        began = time.perf_counter()
        for launch, (start, end) in zip(launches, pairs, strict=True):
            if cold:
                self._moving.add_(1.0)
                self._torch.sum(self._read, dim=0, out=self._sum)
            start.record(stream)
            launch()
            end.record(stream)
        ran_dry = self._gate.query()
        host_us = 1e6 * (time.perf_counter() - began) / len(launches)
        self._cuda.synchronize()
        if ran_dry:
            return None
        self._host_us = host_us
        return [1000 * start.elapsed_time(end) for start, end in pairs]

    def _pairs(self, count: int) -> list[tuple[Any, Any]]:
        while len(self._events) < count:
            start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
            self._events.append((start, end))
        return self._events[:count]


@cache
def _referee() -> Referee:
    import torch

    return Referee(torch)


def time_many(
    launchers: Mapping[str, Launch],
    samples: int = 30,
    *,
    cold: bool = True,
    between: Sequence[Launch] = (),
    referee: Referee | None = None,
) -> dict[str, list[float]]:
    """Microseconds of each launcher, one sample a round, every round in another random order.

    What ran before a kernel and when it was its turn then differs from sample to sample, so that
    neither lasts. Those `between` run before every batch, untimed: a kernel that is timed in turn
    with a few others would find its code in the multiprocessors, and the longer that is, the more
    it would gain.
    """
    referee = referee or _referee()
    _run_each(launchers, referee)
    times: dict[str, list[float]] = {name: [] for name in launchers}
    order = random.Random(0)
    names = list(launchers)
    for _ in range(samples):
        order.shuffle(names)
        for start in range(0, len(names), BATCH):
            together = names[start : start + BATCH]
            for launch in between:
                launch()
            taken = referee.batch([launchers[name] for name in together], cold=cold)
            for name, time_us in zip(together, taken, strict=True):
                times[name].append(time_us)
    return times


def trimmed_mean(times: Sequence[float]) -> float:
    """The mean without the tenth at either end."""
    cut = int(TRIMMED * len(times))
    kept = sorted(times)[cut : len(times) - cut]
    return sum(kept) / len(kept)


def in_turns(
    launchers: Mapping[str, Launch],
    rounds: int,
    *,
    cold: bool = True,
    referee: Referee | None = None,
) -> dict[str, list[float]]:
    """Microseconds of each, one sample a round, side by side: sample `i` of one and of another
    were taken within the same batch. Every other round goes backwards."""
    referee = referee or _referee()
    _run_each(launchers, referee)
    times: dict[str, list[float]] = {name: [] for name in launchers}
    for number in range(rounds):
        names = list(launchers)[:: -1 if number % 2 else 1]
        taken = referee.batch([launchers[name] for name in names], cold=cold)
        for name, time_us in zip(names, taken, strict=True):
            times[name].append(time_us)
    return times


def captured(launch: Launch) -> Launch:
    """The same kernel as a CUDA graph of its own, which costs the host less to launch."""
    import torch

    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    replay: Launch = graph.replay
    return replay


def _run_each(launchers: Mapping[str, Launch], referee: Referee) -> None:
    """Loads every kernel, and wakes the clock."""
    for launch in launchers.values():
        launch()
    referee._cuda.synchronize()
