"""One mode, in the process that times it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from whet.core.config import Config, Value
from whet.doctor.modes.compiler import CompilerWatch
from whet.doctor.modes.numerics import errors_of, first_far_layer, read_outputs
from whet.doctor.modes.second import Again, run_again
from whet.doctor.modes.sources import SubjectSource
from whet.doctor.modes.variants import EAGER, compiled, variant
from whet.doctor.subject import Inputs, Patient, device_of
from whet.measure import Verdict

# Under CUDA graphs the first call compiles, the second records and the third is the first replay.
SETTLING_CALLS = 4


@dataclass(frozen=True)
class MakeModeLoader:
    """Called in the new process: caches first, since torch looks for them when it compiles."""

    source: SubjectSource
    caches: str

    def __call__(self) -> ModeLoader:
        set_caches(self.caches)
        import torch

        torch.manual_seed(0)  # every mode gets the same weights, however they are drawn
        return ModeLoader(self.source, self.caches)


def set_caches(folder: str) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")


class ModeLoader:
    def __init__(self, source: SubjectSource, caches: str) -> None:
        self._subject = source.load()
        self._source = source
        self._caches = caches

    def load(self, config: Config, artifact: Any) -> LoadedMode:
        mode = str(config["mode"])
        again = Again(self._source, self._caches, mode) if variant(mode).looked_at_again else None
        return LoadedMode(self._subject, mode, again)


class LoadedMode:
    """One execution is one call, or one pass over the calls where there are several. With `again`,
    a second process finds out what must not be found out here."""

    compares = False

    def __init__(self, subject: Patient, mode: str, again: Again | None = None) -> None:
        self._subject = subject
        self._mode = mode
        self._again = again
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
        if self._again is not None:
            self._facts.update(run_again(self._again))

    def numerics(self) -> dict[str, Value]:
        """For a mode that is far off, also the layer where that begins."""
        said = errors_of(self._run, self._subject)
        if not self.eager and any(one.far for one in read_outputs(said)):
            with suppress(Exception):
                layer = first_far_layer(lambda one: compiled(one, self._mode), self._subject)
                said["far_from"] = layer or "-"
        return said

    def issue(self, n: int) -> None:
        """The steps without waiting for the device."""
        subject, run = self._subject, self._run
        with subject.gradients():
            for _ in range(n):
                for call in subject.calls:
                    step(run, call, subject)

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


def step(run: Callable[..., Any], call: Inputs, subject: Patient) -> Any:
    """One call; when training, with its backward pass."""
    out = run(*call.args, **call.kwargs)
    if not subject.training:
        return out
    import torch
    from torch.utils._pytree import tree_leaves

    tensors = [one for one in tree_leaves(out) if isinstance(one, torch.Tensor)]
    sum(one.float().sum() for one in tensors if one.requires_grad).backward()
    if isinstance(subject.model, torch.nn.Module):
        subject.model.zero_grad(set_to_none=True)
    return out


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
