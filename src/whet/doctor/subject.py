"""What is examined: a model with the inputs of its calls, and how another process gets it."""

from __future__ import annotations

import inspect
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from whet.core.errors import UsageError
from whet.doctor.finding import Line

_RETURN = "return model, inputs, where inputs is a tensor, a tuple of arguments, a dict of keywords"

# Set in the processes that time a mode, where a script that is run again must not start over.
CHILD = "WHET_DOCTOR_CHILD"


@dataclass(frozen=True)
class Inputs:
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def named(self) -> dict[str, Any]:
        return {**{str(at): value for at, value in enumerate(self.args)}, **self.kwargs}


@dataclass(frozen=True)
class ExaminedModel:
    """`calls` has more than one entry where the inputs change from call to call. `training`: a call
    is a forward and a backward pass; else gradients are off."""

    name: str
    model: Callable[..., Any]
    calls: tuple[Inputs, ...]
    file: str = ""
    training: bool = False

    def gradients(self) -> AbstractContextManager[Any]:
        import torch

        enabled: AbstractContextManager[Any] = torch.set_grad_enabled(self.training)
        return enabled

    @property
    def parameters(self) -> tuple[Any, ...]:
        listed = getattr(self.model, "parameters", None)
        return tuple(listed()) if callable(listed) else ()

    def names(self, call: Inputs) -> dict[str, Any]:
        """The arguments by the model's own names for them, as far as it has any."""
        forward = getattr(self.model, "forward", self.model)
        try:
            parameters = list(inspect.signature(forward).parameters)
        except (TypeError, ValueError):
            parameters = []
        names = [*parameters, *(str(at) for at in range(len(parameters), len(call.args)))]
        return {**dict(zip(names, call.args, strict=False)), **call.kwargs}

    @property
    def place(self) -> Line:
        """Where the model's code begins."""
        forward = getattr(type(self.model), "forward", self.model)
        try:
            lines, first = inspect.getsourcelines(forward)
            return Line(inspect.getsourcefile(forward) or self.file, first, lines[0].strip())
        except (OSError, TypeError):
            return Line(self.file)


def device_of(subject: ExaminedModel) -> int | None:
    """The GPU of the first tensor among the arguments or parameters; None for the CPU."""
    for value in (*subject.calls[0].named.values(), *subject.parameters):
        device: Any = getattr(value, "device", None)
        if getattr(device, "type", "") == "cuda":
            return int(device.index or 0)
    return None


def step(run: Callable[..., Any], call: Inputs, training: bool, model: Any = None) -> Any:
    """One call; when training, with its backward pass, unless nothing that it returns needs one: a
    step with an optimizer of its own has done that itself. `model` has the gradients to forget, if
    `run` is not it."""
    out = run(*call.args, **call.kwargs)
    if not training:
        return out
    loss = loss_of(out)
    if loss is not None:
        loss.backward()
    forget = getattr(run if model is None else model, "zero_grad", None)
    if loss is not None and callable(forget):
        forget(set_to_none=True)
    return out


def loss_of(out: Any) -> Any:
    """The sum of all that gradients can be computed of; None where there is nothing."""
    import torch
    from torch.utils._pytree import tree_leaves

    tensors = [one for one in tree_leaves(out) if isinstance(one, torch.Tensor)]
    real = [one.abs() if one.is_complex() else one for one in tensors if one.requires_grad]
    return sum(one.float().sum() for one in real) if real else None


def subject_of(
    model: Any, inputs: Any, *, name: str = "", file: str = "", training: bool = False
) -> ExaminedModel:
    """Checks both; a model that is compiled already is examined as it was before."""
    model = getattr(model, "_orig_mod", model)
    if not callable(model):
        raise UsageError(
            f"a model of type {type(model).__name__} cannot be called; pass a torch.nn.Module or "
            "a function"
        )
    called = name or getattr(model, "__name__", type(model).__name__)
    if isinstance(inputs, list):
        if not inputs:
            raise UsageError("the list of inputs is empty; give the inputs of at least one call")
        calls = tuple(_call(one) for one in inputs)
    else:
        calls = (_call(inputs),)
    return ExaminedModel(called, model, calls, file, training)


def _call(inputs: Any) -> Inputs:
    if isinstance(inputs, Inputs):
        return inputs
    if isinstance(inputs, Mapping):
        return Inputs(kwargs=dict(inputs))
    return Inputs(args=inputs if isinstance(inputs, tuple) else (inputs,))


def subject_in(path: Path, name: str, *, training: bool = False) -> ExaminedModel:
    """Runs the file and calls its function NAME, which returns a model and inputs."""
    from whet.core.errors import did_you_mean
    from whet.targets.files import guarded, load_module

    module = load_module(path)
    make = getattr(module, name, None)
    if make is None:
        functions = [n for n, value in vars(module).items() if inspect.isfunction(value)]
        raise UsageError(f"{path} has no '{name}'{did_you_mean(name, functions)}")
    if not callable(make):
        raise UsageError(f"{path}:{name} is not a function; {_RETURN}")
    made = guarded(path, make)
    if not isinstance(made, tuple) or len(made) != 2:
        raise UsageError(
            f"{path}:{name} returned {type(made).__name__}, not a model and inputs; {_RETURN}, or "
            "a list of these for several calls"
        )
    model, inputs = made
    file = str(path.resolve())
    return subject_of(model, inputs, name=name, file=file, training=training)


class SubjectSource(Protocol):
    def load(self) -> ExaminedModel:
        """Called in the process that runs the model."""


@dataclass(frozen=True)
class MadeInFile:
    path: str
    name: str
    training: bool = False

    def load(self) -> ExaminedModel:
        return subject_in(Path(self.path), self.name, training=self.training)


@dataclass(frozen=True)
class SavedOnDisk:
    """`main` is the script whose classes the model is made of; empty where it needs none."""

    path: str
    main: str = ""
    training: bool = False

    def load(self) -> ExaminedModel:
        import torch

        os.environ[CHILD] = "1"
        if self.main:
            module = ModuleType("__mp_main__")
            module.__dict__.update(runpy.run_path(self.main, run_name="__mp_main__"))
            sys.modules["__main__"] = sys.modules["__mp_main__"] = module
        model, calls = torch.load(self.path, weights_only=False)
        return subject_of(model, list(calls), training=self.training)


def save(subject: ExaminedModel, folder: Path) -> SavedOnDisk:
    """Raises `UsageError` for a model that cannot be pickled."""
    import torch

    path = folder / "subject.pt"
    try:
        torch.save((subject.model, subject.calls), path)
    except Exception as error:
        raise UsageError(
            f"{subject.name} cannot be sent to another process ({type(error).__name__}: {error}); "
            "write a function that makes it into a file, and run 'whet doctor FILE.py:FUNCTION'"
        ) from error
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    if _of_main(subject) and not main:
        raise UsageError(
            f"{subject.name} is defined in a session without a file, so that no other process can "
            "load it; write it into a file, and run 'whet doctor FILE.py:FUNCTION'"
        )
    return SavedOnDisk(str(path), main if _of_main(subject) else "", subject.training)


def _of_main(subject: ExaminedModel) -> bool:
    modules = getattr(subject.model, "modules", None)
    parts = [subject.model, *(modules() if callable(modules) else ())]
    return any(
        "__main__" in (type(part).__module__, getattr(part, "__module__", "")) for part in parts
    )


@dataclass(frozen=True)
class SecondRun:
    """A mode to be looked at in a second process. `only_warm`: its program has been profiled and
    compared already. `failing`: it fails, and is asked for the part of the model that it fails on.
    """

    source: SubjectSource
    caches: str
    mode: str
    only_warm: bool = False
    failing: bool = False
