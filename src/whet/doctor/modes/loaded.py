"""One mode, in the process that times it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from whet.core.config import Config, Value
from whet.doctor.modes.numerics import errors_of
from whet.doctor.modes.sources import SubjectSource
from whet.doctor.subject import Call, Subject, device_of
from whet.measure import Verdict

EAGER = "eager"

# Under CUDA graphs the first call compiles, the second records and the third is the first replay.
SETTLING_CALLS = 4


@dataclass(frozen=True)
class MakeModeLoader:
    """Called in the new process: caches first, since torch looks for them when it compiles."""

    source: SubjectSource
    caches: str

    def __call__(self) -> ModeLoader:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(self.caches, "inductor")
        os.environ["TRITON_CACHE_DIR"] = os.path.join(self.caches, "triton")
        import torch

        torch.manual_seed(0)  # every mode gets the same weights, however they are drawn
        return ModeLoader(self.source.load())


class ModeLoader:
    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def load(self, config: Config, artifact: Any) -> LoadedMode:
        return LoadedMode(self._subject, str(config["mode"]))


class LoadedMode:
    """One execution is one call, or one pass over the calls where there are several."""

    compares = False

    def __init__(self, subject: Subject, mode: str) -> None:
        self._subject = subject
        self._mode = mode
        self._facts: dict[str, Value] = {}
        self._run: Callable[..., Any] = subject.model
        self._sync = _synchronize(subject)

    @property
    def facts(self) -> Mapping[str, Value]:
        return self._facts

    def first_call(self) -> None:
        """The calls until the model has settled, each by itself."""
        import torch

        model = self._subject.model
        if self._mode != EAGER:
            self._run = torch.compile(model, mode=self._mode)
        times = []
        for _ in range(SETTLING_CALLS):
            began = time.perf_counter()
            self.repeat(1)
            times.append(time.perf_counter() - began)
        self._facts["first_call_s"] = times[0]
        self._facts["second_call_s"] = times[1]
        self._facts["third_call_s"] = times[2]
        self._facts.update(_skipped_graphs())
        _end_compile_workers()

    def repeat(self, n: int) -> None:
        subject, run = self._subject, self._run
        with subject.gradients():
            for _ in range(n):
                for call in subject.calls:
                    step(run, call, subject)
        self._sync()

    def check(self) -> Verdict:
        """Nothing fails here: how far results are off is a fact, and the report's to judge."""
        with suppress(Exception):
            self._facts.update(errors_of(self._run, deepcopy(self._subject)))
        with suppress(Exception):
            self._facts["peak_bytes"] = _peak_bytes(self._subject)
        return Verdict(True, "")

    def close(self) -> None:
        pass


def step(run: Callable[..., Any], call: Call, subject: Subject) -> Any:
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


def _synchronize(subject: Subject) -> Callable[[], object]:
    device = device_of(subject)
    if device is None:
        return lambda: None
    import torch

    synchronize: Callable[[], object] = torch.cuda.synchronize
    return synchronize


def _peak_bytes(subject: Subject) -> int:
    import resource

    if device_of(subject) is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    import torch

    return int(torch.cuda.max_memory_allocated())


def _skipped_graphs() -> dict[str, Value]:
    """Why CUDA graphs were not used where the mode asks for them; empty where they were."""
    with suppress(Exception):
        from torch._dynamo import utils

        reasons = [one.cudagraph_skip_reason for one in utils.get_compilation_metrics()]
        told = [str(reason).strip().splitlines()[0] for reason in reasons if reason]
        if told:
            return {"cudagraph_skip": told[0]}
        if utils.counters["inductor"]["cudagraph_skips"]:
            return {"cudagraph_skip": "torch does not say why"}
    return {}


def _end_compile_workers() -> None:
    """They would go on importing torch while the model is timed."""
    with suppress(Exception):
        from torch._inductor.async_compile import shutdown_compile_workers

        shutdown_compile_workers()
