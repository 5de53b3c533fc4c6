"""`--inputs FILE.py:FUNCTION`: how a Triton kernel's arguments are made, from another file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from whet.engine.target import Target
    from whet.targets.triton.offline.kernel import Kernel

InputsOption = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="FILE.py:FUNCTION",
        help="A function that creates the kernel's arguments from a key; needed if the "
        "kernel's file has no inputs=.",
    ),
]


def with_inputs(found: Target | Kernel, text: str | None) -> Target | Kernel:
    """The kernel with the function that `text` names as its `inputs`; the same without a text."""
    from whet.engine.target import Target

    if text is None:
        return found
    if isinstance(found, Target):
        raise UsageError(f"'{found.name}' takes no --inputs: only Triton kernels have inputs")
    found.tuner.whet_inputs = _function(text, found)
    return replace(found, inputs_from=text)


def _function(text: str, kernel: Kernel) -> Callable[..., Any]:
    from whet.cli.arguments.locate import file_of, name_in
    from whet.targets.files import load_module

    path, name = file_of(text), name_in(text)
    module = _loaded(kernel, path) or load_module(path)
    functions = [
        known
        for known, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    if name is None and "inputs" not in functions:
        raise UsageError(f"--inputs {text} names no function; use FILE.py:FUNCTION")
    value = getattr(module, name or "inputs", None)
    if not callable(value):
        raise UsageError(f"{path} has no function '{name}'{did_you_mean(str(name), functions)}")
    return value  # type: ignore[no-any-return]


def _loaded(kernel: Kernel, path: Path) -> ModuleType | None:
    """The kernel's own module where that is of this file, so that it is not run twice."""
    module = sys.modules.get(kernel.tuner.base_fn.__module__)
    file = getattr(module, "__file__", None)
    return module if file is not None and Path(file) == path.resolve() else None
