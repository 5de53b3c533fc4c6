"""One mode, in the process that times it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from whet.core.config import Value
from whet.doctor.modes.compiler import CompilerWatch
from whet.doctor.modes.variants import EAGER, compiled
from whet.doctor.subject import ExaminedModel, Inputs, SecondRun, device_of, loss_of, step
from whet.measure.bench.protocol import Verdict

SecondLook = Callable[[SecondRun], dict[str, Value]]

# Under CUDA graphs the first call compiles, the second records and the third is the first replay.
SETTLING_CALLS = 4


# Where torch keeps precompiled headers it decides when it is imported, which a process that is a
# copy of another has done before it has caches of its own.
_HEADERS = {"_HEADER_DIR": "headers", "_HEADER_LOCK_DIR": "headers/locks"}

# Modes that ask for CUDA graphs leave these lines out of the same program, wherever they run.
_CHECKS = ("assert_size_stride(", "assert_alignment(", "#")

# What a second process finds out about a program, whichever mode it was compiled in.
_OF_THE_PROGRAM = (
    "kernels",
    "error",
    "eager_error",
    "close_to_eager",
    "outputs",
    "digest",
    "far_from",
    "far_part",
    "not_profiled",
)

_KNOWN = "program.json"

# A mode that is so many times as far from float64 as eager is no longer explained by rounding.
FAR_ABOVE = 4.0

# Backends that stop after Dynamo, after AOTAutograd, and after Inductor's decompositions.
EARLY_ENDS = ("eager", "aot_eager", "aot_eager_decomp_partition")

Tensors = dict[str, Any]


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
        subject: ExaminedModel,
        mode: str,
        again: SecondRun | None = None,
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

    def _looked_at_again(self, again: SecondRun, second: SecondLook) -> dict[str, Value]:
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


def program_in(caches: str) -> str:
    """A digest of all code that Inductor has generated there, checks of inputs and comments aside;
    empty where there is none."""
    texts = [
        "\n".join(line for line in text.splitlines() if not line.strip().startswith(_CHECKS))
        for path in Path(caches, "inductor").rglob("*.py")
        if "def call(" in (text := path.read_text(errors="replace"))
    ]
    if not texts:
        return ""
    return hashlib.sha256("\0".join(sorted(texts)).encode()).hexdigest()


def keep_program(caches: str, program: str, facts: Mapping[str, Value]) -> None:
    """For the modes after this one, whose caches lie beside its own."""
    known = {name: facts[name] for name in _OF_THE_PROGRAM if name in facts}
    with suppress(OSError):
        Path(caches, _KNOWN).write_text(json.dumps({"program": program, "facts": known}))


def same_program(caches: str, program: str) -> dict[str, Value]:
    """What is known of the program from the first mode that came to it, which is `same_as`; empty
    where none did."""
    for path in Path(caches).parent.glob(f"*/{_KNOWN}"):
        with suppress(OSError, ValueError):
            kept = json.loads(path.read_text())
            if program and kept["program"] == program:
                return {**kept["facts"], "same_as": path.parent.name}
    return {}


@dataclass(frozen=True)
class OutputError:
    """One output, or the gradient of one parameter. Both errors are the largest differences from
    float64, relative to the largest value there; `close` is whether it agrees with eager's within
    the tolerances of `torch.testing.assert_close`."""

    name: str
    dtype: str
    error: float
    eager_error: float
    close: bool

    @property
    def far(self) -> bool:
        return not self.close and self.error > FAR_ABOVE * self.eager_error


def errors_of(run: Callable[..., Any], subject: ExaminedModel) -> dict[str, Value]:
    """Empty for a model that is random: then there is nothing to compare. `digest` is equal for
    modes whose results are the same to the last bit."""
    import torch

    model, call = subject.model, subject.calls[0]
    if not isinstance(model, torch.nn.Module):
        return {}
    first, again = (_results(model, model, call, subject.training) for _ in range(2))
    if not all(torch.equal(first[name], again[name]) for name in first):
        return {}
    wide = _wide(model)
    exact = _results(wide, wide, _widened(call), subject.training)
    del wide
    ours = _results(run, model, call, subject.training)
    outputs = [_compared(name, ours[name], first[name], exact[name]) for name in ours]
    return {
        "error": max((one.error for one in outputs), default=0.0),
        "eager_error": max((one.eager_error for one in outputs), default=0.0),
        "close_to_eager": all(one.close for one in outputs),
        "digest": _digest(ours),
        "outputs": json.dumps([list(vars(one).values()) for one in _worst(outputs)]),
    }


def _worst(outputs: list[OutputError], count: int = 16) -> list[OutputError]:
    """All of them, up to a number; a large model has hundreds of gradients."""
    return sorted(outputs, key=lambda one: (one.close, -one.error))[:count]


def first_far_part(compile: Callable[[Any], Callable[..., Any]], subject: ExaminedModel) -> str:
    """The part of the compiler that makes the difference: a backend that ends early and shows it
    already, else `fusion` where it is gone when nothing is fused, else `inductor`."""
    import torch
    import torch._inductor.config as config

    def far(make: Callable[[Any], Callable[..., Any]]) -> bool:
        torch._dynamo.reset()
        return any(one.far for one in read_outputs(errors_of(make(subject.model), subject)))

    for backend in EARLY_ENDS:
        if far(partial(torch.compile, backend=backend)):
            return backend
    with config.patch(max_fusion_size=1):
        return "inductor" if far(compile) else "fusion"


def first_far_layer(compile: Callable[[Any], Callable[..., Any]], subject: ExaminedModel) -> str:
    """The first layer, in the order of the calls, whose output is far from float64 and whose eager
    output is not. Empty where there is none: the difference comes after the layers or between them,
    in gradients, or is gone when their outputs are kept, which may change what is fused."""
    import torch

    torch._dynamo.reset()  # it would run what it compiled without the hooks
    call = subject.calls[0]
    eager = _layers(deepcopy(subject.model), lambda model: model, call)
    exact = _layers(_wide(subject.model), lambda model: model, _widened(call))
    ours = _layers(deepcopy(subject.model), compile, call)
    for name, value in ours.items():
        if name in eager and name in exact and _compared(name, value, eager[name], exact[name]).far:
            return name
    return ""


def _layers(
    model: Any, compile: Callable[[Any], Callable[..., Any]], call: Inputs
) -> dict[str, Any]:
    """The outputs of all layers without layers of their own."""
    import torch

    kept: Tensors = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(layer: Any, given: Any, out: Any) -> None:
            if isinstance(out, torch.Tensor):
                kept[name] = out.clone()

        return hook

    for name, layer in model.named_modules():
        if not list(layer.children()):
            layer.register_forward_hook(keep(name))
    call = deepcopy(call)
    with torch.no_grad():
        compile(model)(*call.args, **call.kwargs)
    return kept


def _results(run: Callable[..., Any], model: Any, call: Inputs, training: bool) -> Tensors:
    import torch
    from torch.utils._pytree import tree_leaves

    call = deepcopy(call)
    with torch.set_grad_enabled(training):
        out = run(*call.args, **call.kwargs)
        tensors = [one for one in tree_leaves(out) if isinstance(one, torch.Tensor)]
        found = {f"output {at}": one.detach().clone() for at, one in enumerate(tensors)}
        if training:
            loss = loss_of(out)
            if loss is not None:
                loss.backward()
            found.update(_gradients(model))
    return found


def _gradients(model: Any) -> Tensors:
    found = {
        f"gradient of {name}": one.grad.detach().clone()
        for name, one in model.named_parameters()
        if one.grad is not None
    }
    model.zero_grad(set_to_none=True)
    return found


def _wide(model: Any) -> Any:
    """`double` leaves complex parameters and buffers as they are."""
    wide = deepcopy(model).double()
    for one in (*wide.parameters(), *wide.buffers()):
        if one.is_complex():
            one.data = _exactly(one.data)
    return wide


def _exactly(value: Any) -> Any:
    import torch

    return value.to(torch.complex128) if value.is_complex() else value.double()


def _widened(call: Inputs) -> Inputs:
    import torch
    from torch.utils._pytree import tree_map

    def wide(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return _exactly(value) if value.is_floating_point() or value.is_complex() else value

    return Inputs(tree_map(wide, call.args), tree_map(wide, dict(call.kwargs)))


def _compared(name: str, ours: Any, eager: Any, exact: Any) -> OutputError:
    import torch

    close = True
    try:
        torch.testing.assert_close(ours, eager, equal_nan=True)
    except AssertionError:
        close = False
    dtype = str(ours.dtype).removeprefix("torch.")
    return OutputError(name, dtype, _relative(ours, exact), _relative(eager, exact), close)


def _relative(ours: Any, exact: Any) -> float:
    if not ours.numel():
        return 0.0
    largest = float(_exactly(exact).abs().max()) or 1.0
    return float((_exactly(ours) - _exactly(exact)).abs().max()) / largest


def _digest(results: Tensors) -> str:
    import torch

    said = hashlib.sha256()
    for one in results.values():
        with suppress(Exception):
            real = torch.view_as_real(one) if one.is_complex() else one
            said.update(real.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return said.hexdigest()[:16]


def read_outputs(facts: Mapping[str, Any]) -> tuple[OutputError, ...]:
    text = facts.get("outputs")
    listed = json.loads(text) if isinstance(text, str) else []
    return tuple(OutputError(*one) for one in listed)
