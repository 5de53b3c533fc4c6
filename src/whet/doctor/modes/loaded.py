"""One mode, in the process that times it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from whet.core.config import Value
from whet.doctor.modes.compiler import CompilerWatch
from whet.doctor.modes.numerics import (
    errors_of,
    first_far_layer,
    first_far_part,
    read_outputs,
)
from whet.doctor.modes.programs import keep_program, program_in, same_program
from whet.doctor.modes.sources import Again
from whet.doctor.modes.variants import EAGER, compiled
from whet.doctor.subject import Patient, device_of, step
from whet.measure import Verdict

SecondLook = Callable[[Again], dict[str, Value]]

# Under CUDA graphs the first call compiles, the second records and the third is the first replay.
SETTLING_CALLS = 4


# Where torch keeps precompiled headers it decides when it is imported, which a process that is a
# copy of another has done before it has caches of its own.
_HEADERS = {"_HEADER_DIR": "headers", "_HEADER_LOCK_DIR": "headers/locks"}


def set_caches(folder: str) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    codecache = sys.modules.get("torch._inductor.codecache")
    for name, place in _HEADERS.items():
        if hasattr(codecache, name):
            setattr(codecache, name, os.path.join(folder, place))


class LoadedMode:
    """One execution is one call, or one pass over the calls where there are several. What must not
    be found out here, `second` finds out in another process, as `again` says."""

    compares = False

    def __init__(
        self,
        subject: Patient,
        mode: str,
        again: Again | None = None,
        second: SecondLook | None = None,
    ) -> None:
        self._subject = subject
        self._mode = mode
        self._again = again
        self._second = second
        self._facts: dict[str, Value] = {}
        self._run: Callable[..., Any] = subject.model
        self.eager = mode == EAGER
        self.device = device_of(subject)
        self.wait = _synchronize(self.device)

    @property
    def facts(self) -> Mapping[str, Value]:
        return self._facts

    def compile(self) -> None:
        self._run = compiled(self._subject.model, self._mode)

    def first_call(self) -> None:
        """The calls until the model has settled, each by itself."""
        watch = None if self.eager else CompilerWatch()
        self.compile()
        times = []
        for _ in range(SETTLING_CALLS):
            began = time.perf_counter()
            self.repeat(1)
            times.append(time.perf_counter() - began)
        self._facts["first_call_s"] = times[0]
        self._facts["second_call_s"] = times[1]
        self._facts["third_call_s"] = times[2]
        if watch is not None:
            self._facts.update(watch.facts())
        _end_compile_workers()
        if self._again is not None and self._second is not None:
            self._facts.update(self._looked_at_again(self._again, self._second))

    def _looked_at_again(self, again: Again, second: SecondLook) -> dict[str, Value]:
        """A program that another mode has come to is not profiled and compared again. On a GPU the
        same code may run in CUDA graphs or without."""
        program = "" if self.eager or self.device is not None else program_in(again.caches)
        known = same_program(again.caches, program)
        if known:
            return {**known, **second(replace(again, only_warm=True))}
        said = second(again)
        if program:
            keep_program(again.caches, program, said)
        return said

    def numerics(self) -> dict[str, Value]:
        """For a mode that is far off, also the layer where that begins, and the part of the
        compiler that it comes from."""
        said = errors_of(self._run, self._subject)
        if not self.eager and any(one.far for one in read_outputs(said)):
            for fact, first in (("far_from", first_far_layer), ("far_part", first_far_part)):
                with suppress(Exception):
                    said[fact] = first(lambda one: compiled(one, self._mode), self._subject)
        return said

    def issue(self, n: int) -> None:
        """The steps without waiting for the device."""
        subject, run = self._subject, self._run
        with subject.gradients():
            for _ in range(n):
                for call in subject.calls:
                    step(run, call, subject.training, subject.model)

    def repeat(self, n: int) -> None:
        self.issue(n)
        self.wait()

    def check(self) -> Verdict:
        """Nothing fails here: how far results are off is the second process's to say."""
        with suppress(Exception):
            self._facts["peak_bytes"] = self._peak_bytes()
        return Verdict(True, "")

    def _peak_bytes(self) -> int:
        """Of a settled step on a GPU; what tuning took is not in it. Of the process on a CPU."""
        if self.device is None:
            import resource

            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        import torch

        torch.cuda.reset_peak_memory_stats()
        self.repeat(1)
        return int(torch.cuda.max_memory_allocated())

    def close(self) -> None:
        pass


def _synchronize(device: int | None) -> Callable[[], object]:
    if device is None:
        return lambda: None
    import torch

    synchronize: Callable[[], object] = torch.cuda.synchronize
    return synchronize


def _end_compile_workers() -> None:
    """They would go on importing torch while the model is timed."""
    with suppress(Exception):
        from torch._inductor.async_compile import shutdown_compile_workers

        shutdown_compile_workers()
