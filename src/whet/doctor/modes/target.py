"""The modes of torch.compile, as a target of the engine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.builds.job import Job
from whet.core.config import Config, Value
from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property
from whet.core.space import Space
from whet.core.timing import Method
from whet.core.workload import Device, Origin, Workload
from whet.doctor.modes.host import HostedModes, MakeModeLoader, ModeBench
from whet.doctor.modes.variants import MODES
from whet.doctor.subject import ExaminedModel, SubjectSource, device_of
from whet.engine.target import BenchLimits
from whet.measure.bench.protocol import Bench
from whet.measure.bench.remote import RemoteBench
from whet.measure.timer import Reading, Runnable, Timer, Warm
from whet.measure.timers import CpuTimer, MakeTimer
from whet.targets.base import host_device
from whet.targets.choice.target import EagerTimer
from whet.targets.fingerprint import digest
from whet.targets.key import key_of


@dataclass(frozen=True)
class ModesTarget:
    """Eager is the first config: it stays unless a mode is shown to be faster."""

    subject: ExaminedModel
    source: SubjectSource
    modes: tuple[str, ...] = MODES

    build_mode = "spawn"

    @property
    def name(self) -> str:
        return self.subject.name

    @property
    def file(self) -> str:
        return self.subject.file

    @cached_property
    def space(self) -> Space:
        return Space({"mode": list(self.modes)})

    @cached_property
    def gpu(self) -> int | None:
        return device_of(self.subject)

    @property
    def shares_host(self) -> bool:
        return self.gpu is None

    @property
    def method(self) -> Method:
        return Method(self._make_timer.name)

    @property
    def _make_timer(self) -> type[CpuTimer] | type[GpuModelTimer]:
        return CpuTimer if self.gpu is None else GpuModelTimer

    def workload(self) -> Workload:
        return self._workload

    @cached_property
    def _workload(self) -> Workload:
        import torch

        text = self._text()
        key = dict(key_of(None, self.subject.names(self.subject.calls[0])))
        key["step"] = "training" if self.subject.training else "inference"
        key["calls"] = len(self.subject.calls)
        if self.gpu is None:
            key["threads"] = torch.get_num_threads()
        return Workload(
            kernel=self.name,
            fingerprint=digest(text),
            device=self._device(),
            key=FrozenMap(key),
            toolchain=FrozenMap({"torch": str(torch.__version__).partition("+")[0]}),
            origin=Origin(digest(text), FrozenMap({})),
        )

    def _text(self) -> str:
        """The file that makes the model; else its layers and the code of its own class."""
        if self.subject.file:
            return Path(self.subject.file).read_text(errors="replace")
        place = self.subject.place
        own = Path(place.file).read_text(errors="replace") if place.file else ""
        return f"{self.subject.model!r}\n{own}"

    def _device(self) -> Device:
        if self.gpu is None:
            return host_device()
        from whet.targets.triton import device

        return device.describe(self.gpu)

    def reject(self, config: Config) -> str | None:
        return None

    def job(self, config: Config) -> Job | None:
        return None

    def bench(self, limits: BenchLimits) -> Bench:
        """Where a copy of a process cannot use the GPU, each mode's starts from nothing."""
        folder = self._empty_caches()
        timer: MakeTimer = self._make_timer
        hosted = HostedModes(self.source, folder, timer, limits.first_call_s)
        if self.gpu is None or hosted.reaches_gpu():
            return hosted
        hosted.close()
        folder = self._empty_caches()

        def open_bench(config: Config) -> RemoteBench:
            caches = str(Path(folder) / str(config["mode"]))
            return RemoteBench(
                MakeModeLoader(self.source, caches),
                timer,
                mode="spawn",
                first_call_s=limits.first_call_s,
            )

        return _InFolder(open_bench, folder)

    @cached_property
    def caches(self) -> Path:
        """Where each mode has its own, in a folder of its name, while a bench is open."""
        return Path(tempfile.mkdtemp(prefix="whet-doctor-"))

    def _empty_caches(self) -> str:
        shutil.rmtree(self.caches, ignore_errors=True)
        self.caches.mkdir(mode=0o700)
        return str(self.caches)

    def twin(self, config: Config, facts: Mapping[str, Value]) -> Hashable | None:
        return None

    def features(self, config: Config) -> Mapping[str, float]:
        return {}

    def call_arguments(self) -> Mapping[str, Any]:
        return self.subject.names(self.subject.calls[0])


class _InFolder(ModeBench):
    """Takes the caches with it when it is closed."""

    def __init__(self, open_bench: Any, folder: str) -> None:
        super().__init__(open_bench)
        self._folder = folder

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


class GpuModelTimer(Timer):
    """Calls from the host, one after another, as `EagerTimer` takes them. It is no `CpuTimer`: what
    CUDA and Triton keep running in the process does not disturb it."""

    name = EagerTimer.name

    def __init__(self) -> None:
        self._timer = EagerTimer()

    def warm(self, run: Runnable) -> Warm:
        return self._timer.warm(run)

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        return self._timer.measure(run, samples, warm)
