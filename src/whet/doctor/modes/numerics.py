"""How far a mode's results are from those in float64, beside how far eager's are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

from whet.core.config import Value
from whet.doctor.subject import Inputs, Patient, loss_of

# A mode that is so many times as far from float64 as eager is no longer explained by rounding.
FAR_ABOVE = 4.0

# Backends that stop after Dynamo, after AOTAutograd, and after Inductor's decompositions.
EARLY_ENDS = ("eager", "aot_eager", "aot_eager_decomp_partition")

Tensors = dict[str, Any]


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


def errors_of(run: Callable[..., Any], subject: Patient) -> dict[str, Value]:
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


def first_far_part(compile: Callable[[Any], Callable[..., Any]], subject: Patient) -> str:
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


def first_far_layer(compile: Callable[[Any], Callable[..., Any]], subject: Patient) -> str:
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
