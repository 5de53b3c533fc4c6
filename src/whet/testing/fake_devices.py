"""Many devices of known speed: a target that is measured in other processes, each of which finds
out by its environment which device it has."""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from whet.builds.job import Built, Job
from whet.core.config import Config, Value
from whet.core.frozen import FrozenMap
from whet.core.space import Space
from whet.core.timing import Method
from whet.core.workload import Device, Workload
from whet.engine.executors.protocol import (
    DEVICE_VARIABLE,
    DeviceExecutor,
    Seat,
    SeatFacts,
    facts_here,
)
from whet.engine.target import BenchLimits
from whet.measure.bench.protocol import Bench, Verdict
from whet.measure.bench.remote import RemoteBench
from whet.measure.timers import CpuTimer
from whet.testing.fakes import FakeDevice, FakeKernel, NoiseModel
from whet.workers.answers import Reply

_making = threading.Lock()


@dataclass(frozen=True)
class FakeModel:
    """How one device behaves: `factor` times as slow as it should be, with this noise."""

    factor: float = 1.0
    noise: NoiseModel = field(default_factory=lambda: NoiseModel(gaussian=0.005))


@dataclass(frozen=True)
class FakeRack:
    """Devices by the end of their name; what is not in it behaves as it should. `look_s` is what a
    first look takes in real seconds, `seed` that of all noise."""

    models: FrozenMap[FakeModel] = field(default_factory=FrozenMap)
    seed: int = 0
    look_s: float = 0.0

    def model(self, name: str) -> FakeModel:
        return next((m for end, m in self.models.items() if name.endswith(end)), FakeModel())


@cache
def _device_called(name: str, rack: FakeRack) -> FakeDevice:
    noise = rack.model(name).noise
    return FakeDevice(noise, seed=zlib.crc32(f"{rack.seed} {name}".encode()))


def _this_device(rack: FakeRack) -> FakeDevice:
    return _device_called(os.environ.get(DEVICE_VARIABLE, ""), rack)


@dataclass(frozen=True)
class FakeLoader:
    """Called where the device is, makes what loads configs there."""

    rack: FakeRack
    times: Mapping[str, float]

    def __call__(self) -> _LoaderThere:
        return _LoaderThere(self)


class _LoaderThere:
    def __init__(self, made_of: FakeLoader) -> None:
        self._made_of = made_of
        self._device = _this_device(made_of.rack)
        self._factor = made_of.rack.model(os.environ.get(DEVICE_VARIABLE, "")).factor

    def load(self, config: Config, artifact: Any) -> _LoadedThere:
        ns = self._made_of.times[config.id] * self._factor
        return _LoadedThere(self._device.kernel(ns), self._made_of.rack.look_s)


class _LoadedThere:
    facts: Mapping[str, Value] = {}

    def __init__(self, kernel: FakeKernel, look_s: float) -> None:
        self._kernel = kernel
        self._look_s = look_s

    def repeat(self, n: int) -> None:
        self._kernel.repeat(n)

    def check(self) -> Verdict:
        time.sleep(self._look_s)
        return Verdict(True, "")

    def close(self) -> None:
        pass


def _timer_there(rack: FakeRack) -> CpuTimer:
    clock = _this_device(rack).clock
    return CpuTimer(clock, clock.cpu, cpu_resolution_ns=1)


def slow_build(value: str, seconds: float) -> Built:
    time.sleep(seconds)
    return Built(value)


class ObjectHere:
    """A `Session` without a process. Limits cannot be kept, and what crashes takes this process
    along."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self._factory = factory
        self._object: Any = None
        self._closed = False
        self.generation = 1
        self.made = 0
        self.set_up: FrozenMap[float] = FrozenMap()

    def prepare(self) -> None:
        if self.made < self.generation:
            self._object = self._factory()
            self.made = self.generation

    def discard(self) -> None:
        self.generation += 1
        self._object = None

    def call(
        self,
        method: str,
        *args: Any,
        limit_s: float | None = None,
        memory_bytes: int | None = None,
        parts_s: Mapping[str, float] | None = None,
    ) -> Reply:
        if self._closed:
            raise RuntimeError("the session is closed")
        self.prepare()
        start = time.perf_counter()
        value = getattr(self._object, method)(*args)
        return Reply(value, time.perf_counter() - start)

    def abort(self) -> None:
        """A call in this process cannot be ended."""

    def close(self, wait: bool = True) -> None:
        self._closed, self._object = True, None


class FakeSeat:
    """A device of a rack, in this process. Its objects find it by name when they are made."""

    remote = False

    def __init__(self, name: str) -> None:
        self.name = name

    def facts(self) -> SeatFacts:
        return facts_here()

    def session(
        self, factory: Callable[[], Any], mode: str = "spawn", *, preload: Sequence[str] = ()
    ) -> ObjectHere:
        def made() -> Any:
            with _making:
                os.environ[DEVICE_VARIABLE] = self.name
                try:
                    return factory()
                finally:
                    del os.environ[DEVICE_VARIABLE]

        return ObjectHere(made)


class FakeDevices(DeviceExecutor):
    """Many devices without a process for any: for many runs in little time."""

    name = "fake devices"

    def __init__(self, names: Sequence[str]) -> None:
        self._fakes = tuple(map(FakeSeat, names))

    def seats(self) -> Sequence[Seat]:
        return self._fakes

    def close(self) -> None:
        pass


class RackTarget:
    """`RackTarget(space, times)` where `times(config)` is a config's true time in nanoseconds on a
    device that behaves. `build_s` is what a build takes; without it there are none."""

    name = "fake"
    shares_host = False
    build_mode = "spawn"

    def __init__(
        self,
        space: Space | Mapping[str, Any],
        times: Callable[[Config], float],
        rack: FakeRack | None = None,
        *,
        devices: Sequence[str] = ("0", "1"),
        build_s: float | None = None,
        name: str = "fake",
    ) -> None:
        self.name = name
        self.space = space if isinstance(space, Space) else Space(space)
        self.method: Method | None = Method(CpuTimer.name)
        self.rack = rack or FakeRack()
        self.times = {config.id: times(config) for config in self.space}
        self._devices = tuple(devices)
        self._build_s = build_s

    @property
    def best(self) -> Config:
        return min(self.space, key=lambda config: self.times[config.id])

    def device_names(self) -> Sequence[str]:
        return self._devices

    def device_environment(self, name: str) -> Mapping[str, str]:
        return {}

    def workload(self) -> Workload:
        return Workload(self.name, "0", Device("fake device", "fake", "f1"))

    def reject(self, config: Config) -> str | None:
        return None

    def job(self, config: Config) -> Job | None:
        if self._build_s is None:
            return None
        return Job(slow_build, (config.id, self._build_s))

    def bench(self, limits: BenchLimits) -> Bench:
        return RemoteBench(
            FakeLoader(self.rack, self.times),
            partial(_timer_there, self.rack),
            open_session=limits.open_session,
        )

    def twin(self, config: Config, facts: Mapping[str, Value]) -> Hashable | None:
        return None

    def features(self, config: Config) -> Mapping[str, float]:
        return {}
