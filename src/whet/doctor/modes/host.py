"""One process that has imported torch's compiler, and of which those that run a mode are copies.

Importing takes longer than anything else that a mode needs before its first call. The process
itself computes nothing: threads and devices that have been used do not survive a copy. A driver
that was so much as asked for its devices does not either; a copy finds out whether it was.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.doctor.modes.loaded import LoadedMode, SecondLook, set_caches
from whet.doctor.modes.second import SecondCopy, run_again
from whet.doctor.modes.variants import EAGER, variant
from whet.doctor.subject import SecondRun, SubjectSource
from whet.measure.bench.protocol import Answer, Bench, Sampled, Visit
from whet.measure.bench.remote import RemoteBench
from whet.measure.timer import joined
from whet.measure.timers import MakeTimer
from whet.workers.answers import RemoteError, WorkerDied, WorkerTimeout
from whet.workers.session import Session

# With it, modules of torch that ask whether there is a GPU do not wake the driver.
_ASK_WITHOUT_DRIVER = "PYTORCH_NVML_BASED_CUDA_CHECK"

# A driver that is asked in vain may never answer.
_TRY_GPU_S = 60.0

# How often a mode and eager take turns: as often as the time allows, and at least as often as
# something can be shown at 99 %. The number does not depend on what the rounds say.
ROUNDS, LEAST_ROUNDS, ROUNDS_S = 21, 9, 10.0

_EAGER = Config({"mode": EAGER})


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


class HostedModes(Bench):
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


@dataclass(frozen=True)
class MakeModeLoader:
    """Called in the new process: caches first, since torch looks for them when it compiles.
    `copied`: it has imported torch and used nothing of it yet."""

    source: SubjectSource
    caches: str
    copied: bool = False

    def __call__(self) -> ModeLoader:
        set_caches(self.caches)
        second = SecondCopy(self.caches).run if self.copied else run_again
        import torch

        torch.manual_seed(0)  # every mode gets the same weights, however they are drawn
        return ModeLoader(self.source, self.caches, second)


class ModeLoader:
    def __init__(self, source: SubjectSource, caches: str, second: SecondLook) -> None:
        self._subject = source.load()
        self._source = source
        self._caches = caches
        self._second = second

    def load(self, config: Config, artifact: Any) -> LoadedMode:
        mode = str(config["mode"])
        if not variant(mode).looked_at_again:
            return LoadedMode(self._subject, mode)
        again = SecondRun(self._source, self._caches, mode)
        return LoadedMode(self._subject, mode, again, self._second)


class ModeBench(Bench):
    """A process starts when its mode is first visited, so that no other one is compiled or timed
    beside it. It then waits for its next turn: the race and the duel go from process to process.
    Whatever they leave out, each mode takes turns with eager after its first samples."""

    in_process = False

    def __init__(self, open_bench: Callable[[Config], RemoteBench]) -> None:
        self._open = open_bench
        self._benches: dict[str, RemoteBench] = {}
        self._running: RemoteBench | None = None

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        """Every mode is sampled, however slow its warm-up was: the report is a table of all."""
        answers: dict[str, Answer] = {}
        for config, artifact in visit.built:
            before = answers.get(config.id)
            if isinstance(before, ConfigFailure):
                continue
            one = self._visited(replace(visit.of((config, artifact)), hopeless=None))
            if isinstance(before, Sampled) and isinstance(one, Sampled):
                one = _with(before, one)
            if visit.first and config != _EAGER and isinstance(one, Sampled):
                beside = self._beside_eager(config, visit)
                one = replace(one, facts=FrozenMap({**one.facts, **beside}))
            answers[config.id] = one
        return tuple(answers.values())

    def _visited(self, visit: Visit) -> Answer:
        [(config, _)] = visit.built
        self._running = self._bench(config)
        [one] = self._running.measure(visit)
        self._running = None
        return one

    def _beside_eager(self, config: Config, visit: Visit) -> dict[str, Value]:
        """What both take in rounds, each first in every other one; empty where one fails."""
        one_sample = Visit(((_EAGER, None),), 1, limit_s=visit.limit_s)
        if _EAGER.id not in self._benches:  # its timing is known from an earlier run
            self._visited(replace(one_sample, first=True))
        rounds: list[tuple[float, float]] = []
        began = time.monotonic()
        while len(rounds) < ROUNDS and (
            len(rounds) < LEAST_ROUNDS or time.monotonic() - began < ROUNDS_S
        ):
            taken: dict[Config, float] = {}
            for one in (_EAGER, config) if len(rounds) % 2 else (config, _EAGER):
                answer = self._visited(one_sample.of((one, None)))
                if isinstance(answer, ConfigFailure):
                    return {}
                taken[one] = answer.reading.samples[0]
            rounds.append((taken[_EAGER], taken[config]))
        return {"beside_eager": json.dumps(rounds)}

    def _bench(self, config: Config) -> RemoteBench:
        if config.id not in self._benches:
            self._benches[config.id] = self._open(config)
        return self._benches[config.id]

    def forget(self, config: Config) -> None:
        """Eager stays at hand for the modes to come."""
        if config == _EAGER:
            return
        bench = self._benches.pop(config.id, None)
        if bench is not None:
            bench.close()

    def end_call(self) -> None:
        if self._running is not None:
            self._running.end_call()

    def close(self) -> None:
        for bench in self._benches.values():
            bench.close()
        self._benches.clear()


def _with(before: Sampled, later: Sampled) -> Sampled:
    seconds = dict(before.seconds)
    for phase, spent in later.seconds.items():
        seconds[phase] = seconds.get(phase, 0.0) + spent
    reading = joined([before.reading, later.reading])
    return Sampled(reading, FrozenMap(seconds), before.facts)
