"""What all that Inductor asks about has in common, as a target of the engine."""

from __future__ import annotations

import platform
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

from whet.builds.job import Job
from whet.core.config import Config, Value
from whet.core.errors import StoreError, UsageError
from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property
from whet.core.space import Space
from whet.core.timing import Method
from whet.core.workload import Device, Workload
from whet.engine.fallback.calls import opened, timing_locks
from whet.engine.fallback.untuned import exact_pick
from whet.engine.log import say_once
from whet.engine.settings import Settings, resolve_settings
from whet.engine.target import BenchLimits
from whet.engine.turns import LONGEST_VISIT_S, OneAtATime
from whet.measure import Timer
from whet.measure.bench.executor import LocalBench
from whet.measure.bench.protocol import Bench
from whet.measure.timers import CpuTimer
from whet.targets.base import host_device
from whet.targets.fingerprint import Parts
from whet.targets.triton import device


def on_current_stream(launch: Callable[..., Any], gpu: int | None) -> Callable[[], Any]:
    """`launch` takes the stream by name. What is current when it is called is not what is current
    now: a CUDA graph is recorded on a stream of its own, and would be empty."""
    if gpu is None:
        return partial(launch, stream=0)
    current = sys.modules["torch"].cuda.current_stream
    return lambda: launch(stream=current(gpu).cuda_stream)


def stored_pick(target: InductorTarget) -> Config | None:
    """A store that cannot be read must not stop a model from being compiled."""
    try:
        with opened(resolve_settings().settings) as store:
            pick = exact_pick(target, target.workload(), store)
    except StoreError as error:
        say_once(f"stored results will not be used: {error}")
        return None
    return None if pick is None else pick.trial.config


class InductorTarget(ABC):
    """Timed in this process, on what Inductor has at hand; `gpu` is a number, or None for the CPU.
    What is only looked up is not `timed`."""

    build_mode = "fork"
    file = ""
    mode = lock = bit_check = samples = None
    timed = True

    def __init__(self, name: str, gpu: int | None, space: Space) -> None:
        self.name, self.gpu, self.space = name, gpu, space
        self.shares_host = gpu is None

    @property
    @abstractmethod
    def key(self) -> Mapping[str, Any]: ...

    @property
    def code(self) -> str:
        """What it computes, where the key does not say it."""
        return self.name

    @abstractmethod
    def load(self, config: Config, artifact: Any) -> Any: ...

    @cached_property
    def _settings(self) -> Settings:
        return resolve_settings().settings

    @property
    def method(self) -> Method:
        if self.gpu is None:
            return Method(CpuTimer.name)
        return device.method(self.gpu, self._settings.l2, self._settings.l2_bytes, True)

    def workload(self) -> Workload:
        return self._workload

    @cached_property
    def _workload(self) -> Workload:
        parts = Parts()
        parts.code(self.code)
        source = parts.source()
        torch, triton = sys.modules["torch"], sys.modules.get("triton")
        versions = {"torch": str(torch.__version__).partition("+")[0]}
        if self.gpu is None:
            versions["python"] = platform.python_version()
        elif triton is not None:
            versions["triton"] = triton.__version__
        return Workload(
            kernel=self.name,
            fingerprint=source.fingerprint,
            device=self._device(),
            key=FrozenMap(self.key),
            toolchain=FrozenMap(versions),
            origin=source.origin,
        )

    def _device(self) -> Device:
        return host_device() if self.gpu is None else device.describe(self.gpu)

    def reject(self, config: Config) -> str | None:
        return None

    def job(self, config: Config) -> Job | None:
        return None

    def twin(self, config: Config, facts: Mapping[str, Value]) -> Hashable | None:
        return None

    def features(self, config: Config) -> Mapping[str, float]:
        return {}

    def bench(self, limits: BenchLimits) -> Bench:
        if not self.timed:
            raise UsageError(
                f"{self.name} can only be timed while torch.compile compiles it: compile the model "
                "with whet.install(inductor=True)"
            )
        gpu, settings = self.gpu, self._settings
        if gpu is None:
            return LocalBench(self, CpuTimer())
        timer: Timer = device.timer(gpu, settings.l2, settings.l2_bytes, True)
        path = device.timing_lock_path(gpu, timing_locks(settings))
        alone = OneAtATime(path, min(LONGEST_VISIT_S, settings.agree_wait_s))
        return LocalBench(self, timer, alone=alone)

    def wait(self) -> None:
        if self.gpu is not None:
            sys.modules["torch"].cuda.synchronize()
