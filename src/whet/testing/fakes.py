"""A clock that moves only when told, and a device whose kernels take a known time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


class FakeClock:
    """Give `clock` and `clock.cpu` to a timer; kernels of a `FakeDevice` move both."""

    def __init__(self) -> None:
        self._wall = 0.0
        self._cpu = 0.0

    def __call__(self) -> int:
        return round(self._wall)

    def cpu(self) -> int:
        return round(self._cpu)

    def advance(self, ns: float, busy: float = 1.0) -> None:
        """`ns` pass on the wall, and `busy` times as many on the CPU."""
        self._wall += ns
        self._cpu += ns * busy


@dataclass(frozen=True)
class NoiseModel:
    """What happens to a sample, drawn anew for each call of `repeat`.

    `gaussian` is the relative standard deviation. With probability `tail_chance` a sample takes
    up to `tail_factor` times as long. `drift_per_s` is how much slower the device gets a second,
    `throttle` its steps: `((2.0, 1.2), (5.0, 1.0))` is 20 % slower from 2 s to 5 s. With
    probability `preempt_chance` the process is put aside for `preempt_ns`.
    """

    gaussian: float = 0.0
    tail_chance: float = 0.0
    tail_factor: float = 2.0
    drift_per_s: float = 0.0
    throttle: tuple[tuple[float, float], ...] = ()
    preempt_chance: float = 0.0
    preempt_ns: float = 0.0


class FakeDevice:
    """`FakeDevice(NoiseModel(gaussian=0.02), seed=7).kernel(12_000).repeat(3)` moves `clock`."""

    def __init__(
        self, noise: NoiseModel | None = None, seed: int = 0, clock: FakeClock | None = None
    ) -> None:
        self.noise = noise or NoiseModel()
        self.clock = clock or FakeClock()
        self._random = random.Random(seed)

    def kernel(self, ns: float, first_factor: float = 1.0, busy: float = 1.0) -> FakeKernel:
        """A kernel of `ns` per execution; its very first takes `first_factor` times that."""
        return FakeKernel(self, ns, first_factor, busy)

    def sample(self, ns: float, count: int = 1) -> tuple[float, ...]:
        """What a perfect timer would read of `count` executions of a kernel of `ns`."""
        return tuple(self.spend(ns) for _ in range(count))

    def spend(self, ns: float, busy: float = 1.0) -> float:
        """Lets a call that should take `ns` happen; returns what it took."""
        taken = ns * self._factor()
        self.clock.advance(taken, busy)
        if self.noise.preempt_chance and self._random.random() < self.noise.preempt_chance:
            self.clock.advance(self.noise.preempt_ns, busy=0.0)
            taken += self.noise.preempt_ns
        return taken

    def _factor(self) -> float:
        noise, now_s = self.noise, self.clock() / 1e9
        factor = 1.0 + noise.drift_per_s * now_s
        factor *= _step(noise.throttle, now_s)
        if noise.gaussian:
            factor *= max(0.01, self._random.gauss(1.0, noise.gaussian))
        if noise.tail_chance and self._random.random() < noise.tail_chance:
            factor *= self._random.uniform(1.0, noise.tail_factor)
        return factor


class FakeKernel:
    """A `Runnable` that counts its executions."""

    def __init__(self, device: FakeDevice, ns: float, first_factor: float, busy: float) -> None:
        self.executions = 0
        self._device = device
        self._ns = ns
        self._first_factor = first_factor
        self._busy = busy

    def repeat(self, n: int) -> None:
        extra = (self._first_factor - 1.0) if self.executions == 0 else 0.0
        self._device.spend(self._ns * (n + extra), self._busy)
        self.executions += n


def _step(steps: Sequence[tuple[float, float]], now_s: float) -> float:
    factor = 1.0
    for start_s, step in steps:
        if now_s >= start_s:
            factor = step
    return factor
