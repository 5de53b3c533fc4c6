"""One process that has imported torch's compiler, and of which those that run a mode are copies.

Importing takes longer than anything else that a mode needs before its first call. The process
itself computes nothing: threads and devices that have been used do not survive a copy. A driver
that was so much as asked for its devices does not either; a copy finds out whether it was.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.doctor.modes.bench import ModeBench
from whet.doctor.modes.loader import MakeModeLoader
from whet.doctor.modes.sources import SubjectSource
from whet.measure import RemoteBench
from whet.measure.bench.protocol import Answer, Visit
from whet.measure.timers import MakeTimer
from whet.workers.answers import RemoteError, WorkerDied, WorkerTimeout
from whet.workers.session import Session

# With it, modules of torch that ask whether there is a GPU do not wake the driver.
_ASK_WITHOUT_DRIVER = "PYTORCH_NVML_BASED_CUDA_CHECK"

# A driver that is asked in vain may never answer.
_TRY_GPU_S = 60.0


@dataclass(frozen=True)
class MakeModeHost:
    source: SubjectSource
    folder: str
    timer: MakeTimer

    def __call__(self) -> ModeHost:
        given = os.environ.get(_ASK_WITHOUT_DRIVER)
        os.environ[_ASK_WITHOUT_DRIVER] = "1"
        import torch._dynamo
        import torch._inductor.compile_fx
        import torch.profiler  # noqa: F401  (what every copy would import)

        if given is None:  # a model is timed as it runs elsewhere
            del os.environ[_ASK_WITHOUT_DRIVER]
        return ModeHost(self.source, self.folder, self.timer)


class ModeHost:
    """Lives in the process that is copied."""

    def __init__(self, source: SubjectSource, folder: str, timer: MakeTimer) -> None:
        self._first_call_s = 0.0

        def open_bench(config: Config) -> RemoteBench:
            caches = str(Path(folder) / str(config["mode"]))
            loader = MakeModeLoader(source, caches, copied=True)
            return RemoteBench(loader, timer, mode="fork", first_call_s=lambda: self._first_call_s)

        self._bench = ModeBench(open_bench)

    def copies_reach_gpu(self) -> bool:
        """Tried by one."""
        pid = os.fork()
        if pid == 0:
            code = 1
            with suppress(BaseException):
                import torch

                torch.cuda.init()
                code = 0
            os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    def measure(self, visit: Visit, first_call_s: float) -> tuple[Answer, ...]:
        self._first_call_s = first_call_s
        return self._bench.measure(visit)

    def forget(self, config: Config) -> None:
        self._bench.forget(config)


class HostedModes:
    """The bench of modes, seen from the process that asks."""

    in_process = False

    def __init__(
        self,
        source: SubjectSource,
        folder: str,
        timer: MakeTimer,
        first_call_s: Callable[[], float] | None,
    ) -> None:
        self._folder = folder
        self._first_call_s = first_call_s or (lambda: math.inf)
        self._host = Session(MakeModeHost(source, folder, timer))

    def reaches_gpu(self) -> bool:
        with suppress(WorkerDied, WorkerTimeout, RemoteError):
            return bool(self._host.call("copies_reach_gpu", limit_s=_TRY_GPU_S).value)
        return False

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        try:
            answers: tuple[Answer, ...] = self._host.call(
                "measure", visit, self._first_call_s()
            ).value
        except (WorkerDied, WorkerTimeout, RemoteError) as problem:
            text = f"the process that starts the modes has failed: {problem}"
            return tuple(ConfigFailure(Status.RUN_ERROR, text) for _ in visit.ids)
        return answers

    def forget(self, config: Config) -> None:
        with suppress(WorkerDied, WorkerTimeout, RemoteError):
            self._host.call("forget", config)

    def end_call(self) -> None:
        self._host.abort()

    def close(self) -> None:
        """Takes the caches with it."""
        self._host.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
