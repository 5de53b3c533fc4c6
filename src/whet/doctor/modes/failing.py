"""The smallest part of a model on which a mode fails, found by compiling its layers alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

from whet.core.config import Value
from whet.doctor.modes.numerics import EARLY_ENDS
from whet.doctor.modes.variants import variant
from whet.doctor.subject import Inputs, Patient, device_of, step

# Under CUDA graphs the third call is the first replay.
_CALLS = 3

Compile = Callable[[Any], Callable[..., Any]]


def smallest_failure(subject: Patient, mode: str, compile: Compile) -> dict[str, Value]:
    """`compile` applies the mode. Empty where that does not fail here. `layer` is empty where no
    layer fails alone, and `early_end` is missing where it takes all of the compiler to fail;
    `everywhere` says that the mode fails on `x + 1` as well."""
    import torch

    problem = _problem(subject, compile)
    if problem is None:
        return {}
    x = torch.ones(4, device="cpu" if device_of(subject) is None else "cuda")
    trivial = replace(subject, model=lambda x: x + 1, calls=(Inputs((x,)),))
    if _problem(trivial, compile) is not None:
        return {"everywhere": True}
    name, part = _smallest(subject, compile, type(problem))
    said: dict[str, Value] = {"layer": name, **vars(part.place)}
    for backend in EARLY_ENDS:
        if _problem(part, partial(torch.compile, backend=backend)) is not None:
            said["early_end"] = backend
            break
    said["repro"] = _repro(subject, name, part, mode, type(problem))
    if name and _helps_without(subject, name, compile):
        said["without"] = True
    return said


def _problem(subject: Patient, compile: Compile) -> Exception | None:
    import torch

    torch._dynamo.reset()
    model, call = deepcopy(subject.model), subject.calls[0]
    try:
        with subject.gradients():
            run = compile(model)
            for _ in range(_CALLS):
                step(run, deepcopy(call), subject.training, model)
    except Exception as problem:
        return problem
    return None


def _smallest(subject: Patient, compile: Compile, kind: type[Exception]) -> tuple[str, Patient]:
    """Down from layer to layer, as long as one fails alone in the same way. Layers that are alike,
    and are called alike, are tried once."""
    calls = _calls_of_layers(subject)
    seen: set[str] = set()
    name, part = "", subject

    def failing() -> Iterator[tuple[str, Patient]]:
        for below in _next_below(name, calls):
            layer = subject.model.get_submodule(below)  # type: ignore[attr-defined]
            inner = replace(subject, model=layer, calls=(calls[below],))
            alike = f"{layer} {_arguments(calls[below])}"
            if alike not in seen:
                seen.add(alike)
                if type(_problem(inner, compile)) is kind:
                    yield below, inner

    while (found := next(failing(), None)) is not None:
        name, part = found
    return name, part


def _calls_of_layers(subject: Patient) -> dict[str, Inputs]:
    """What each layer is called with first, in the order of the calls."""
    import torch
    from torch.utils._pytree import tree_map_only

    calls: dict[str, Inputs] = {}
    model = deepcopy(subject.model)
    if not isinstance(model, torch.nn.Module):
        return {}

    def keep(name: str) -> Callable[..., None]:
        def hook(layer: Any, args: Any, kwargs: Any) -> None:
            copies = tree_map_only(torch.Tensor, lambda one: one.detach().clone(), (args, kwargs))
            calls.setdefault(name, Inputs(*copies))

        return hook

    for name, layer in model.named_modules():
        if name:
            layer.register_forward_pre_hook(keep(name), with_kwargs=True)
    call = deepcopy(subject.calls[0])
    with subject.gradients():
        model(*call.args, **call.kwargs)
    return calls


def _next_below(name: str, calls: dict[str, Inputs]) -> list[str]:
    """Those called directly by it: lists of layers are not called themselves."""
    inside = [one for one in calls if not name or one.startswith(f"{name}.")]
    return [one for one in inside if not any(one.startswith(f"{other}.") for other in inside)]


def _helps_without(subject: Patient, name: str, compile: Compile) -> bool:
    import torch

    model = deepcopy(subject.model)
    layer = model.get_submodule(name)  # type: ignore[attr-defined]
    layer.forward = torch.compiler.disable(layer.forward)
    return _problem(replace(subject, model=model), compile) is None


def _repro(subject: Patient, name: str, part: Patient, mode: str, kind: type[Exception]) -> str:
    """An expression of `model` that fails in the same way; empty where it does not: the values of
    the inputs are not in it."""
    import torch

    layer = f"model.get_submodule({name!r})" if name else "model"
    text = f"torch.compile({layer}, {variant(mode).call})({_arguments(part.calls[0])})"
    if subject.training:
        text += ".sum().backward()"
    torch._dynamo.reset()
    try:
        with subject.gradients():
            for _ in range(_CALLS):
                eval(text, {"torch": torch, "model": deepcopy(subject.model)})
    except Exception as problem:
        return text if type(problem) is kind else ""
    return ""


def _arguments(call: Inputs) -> str:
    named = [f"{name}={_argument(value)}" for name, value in call.kwargs.items()]
    return ", ".join([*map(_argument, call.args), *named])


def _argument(value: Any) -> str:
    import torch

    if not isinstance(value, torch.Tensor):
        return repr(value)
    made = "randn" if value.is_floating_point() or value.is_complex() else "zeros"
    words = [str(list(value.shape))]
    if value.dtype != torch.float32:
        words.append(f"dtype={value.dtype}")
    if value.device.type != "cpu":
        words.append(f"device='{value.device.type}'")
    return f"torch.{made}({', '.join(words)})"
