"""A target whose kernels take a known time, and which counts what is done to it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from whet.builds.job import Built, Job
from whet.core.config import Config, Value
from whet.core.frozen import FrozenMap
from whet.core.space import Space
from whet.core.timing import Method
from whet.core.workload import Device, Workload
from whet.engine.target import BenchLimits
from whet.measure.bench.executor import LocalBench
from whet.measure.bench.protocol import Bench, Verdict
from whet.measure.timers import CpuTimer
from whet.testing.fakes import FakeDevice, FakeKernel, NoiseModel


class FakeTarget:
    """`FakeTarget(space, times)` where `times(config)` is a config's true time in nanoseconds.

    `times` may raise `ConfigFailure`: then that is what running the config leads to. With
    `building` every config is built by a real, trivial job in the pool. `built` and `looked` list
    configs in the order in which a job was asked for or a first look was taken.
    """

    def __init__(
        self,
        space: Space | Mapping[str, Any] | Iterable[Mapping[str, Any]],
        times: Callable[[Config], float],
        *,
        noise: NoiseModel | None = None,
        seed: int = 0,
        building: bool = False,
        shares_host: bool = True,
        reject: Callable[[Config], str | None] = lambda config: None,
        facts: Callable[[Config], Mapping[str, Value]] = lambda config: {},
        twin: Callable[[Config], Hashable | None] = lambda config: None,
    ) -> None:
        self.name = "fake"
        self.space = space if isinstance(space, Space) else Space(space)
        self.shares_host = shares_host
        self.build_mode = "fork"
        self.method: Method | None = Method(CpuTimer.name)
        self.device = FakeDevice(noise, seed)
        self.built: list[Config] = []
        self.looked: list[Config] = []
        self.times = times
        self.facts = facts
        self._building = building
        self._reject = reject
        self._twin = twin

    def workload(self) -> Workload:
        return Workload(self.name, "0", Device("fake device", "fake", "f1"))

    def reject(self, config: Config) -> str | None:
        return self._reject(config)

    def job(self, config: Config) -> Job | None:
        if not self._building:
            return None
        self.built.append(config)
        return Job(Built, (config.id,))

    def bench(self, limits: BenchLimits) -> Bench:
        clock = self.device.clock
        return LocalBench(self, CpuTimer(clock, clock.cpu, cpu_resolution_ns=1))

    def twin(self, config: Config, facts: Mapping[str, Value]) -> Hashable | None:
        return self._twin(config)

    def features(self, config: Config) -> Mapping[str, float]:
        return {}

    def load(self, config: Config, artifact: Any) -> _LoadedFake:
        if self._building:
            assert artifact == config.id
        return _LoadedFake(self, config)


class _LoadedFake:
    def __init__(self, target: FakeTarget, config: Config) -> None:
        self._target = target
        self._config = config
        self._kernel: FakeKernel = target.device.kernel(target.times(config))
        self.facts: FrozenMap[Value] = FrozenMap(target.facts(config))

    def repeat(self, n: int) -> None:
        self._kernel.repeat(n)

    def check(self) -> Verdict:
        self._target.looked.append(self._config)
        return Verdict(True, "")

    def close(self) -> None:
        pass
