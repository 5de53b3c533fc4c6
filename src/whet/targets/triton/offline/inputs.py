"""`inputs`: from a key to the arguments of one launch, and what is said of one that does not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any

from whet.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from whet.targets.triton.offline.kernel import Kernel

Key = Mapping[str, Any]
Launch = tuple[Any, tuple[Any, ...], dict[str, Any]]


def check_inputs(kernel: Kernel) -> None:
    """Raises `UsageError` where nobody can make arguments from a key."""
    if kernel.tuner.whet_inputs is None:
        where = "--inputs FILE.py:FUNCTION"
        if not kernel.stock:
            where = f"whet.autotune(…, inputs=…) or {where}"
        raise with_example(
            kernel,
            f"kernel '{kernel.name}' does not say how to create its arguments; give {where}, a "
            "function such as:",
        )


def check_key(kernel: Kernel, key: Key) -> None:
    """Raises `UsageError` unless `inputs` can be called with this key."""
    parameters = inspect.signature(_inputs(kernel)).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for name in key:
        if name not in names and not open_ended:
            raise UsageError(
                f"the inputs function of kernel '{kernel.name}' takes no "
                f"'{name}'{did_you_mean(name, names)}"
            )
    needed = [p.name for p in parameters if p.name in names and p.default is p.empty]
    missing = [name for name in needed if name not in key]
    if missing:
        example = ",".join(f"{name}=…" for name in needed)
        where = (
            f"the key {key_text(key)} lacks {', '.join(missing)}" if key else "a key is required"
        )
        raise UsageError(f"{where} for kernel '{kernel.name}'; give --key {example}")


def key_text(key: Key) -> str:
    """`{"M": 64, "N": 32}` is `M=64,N=32`, as it is typed."""
    return ",".join(f"{name}={value}" for name, value in key.items())


def make_inputs(kernel: Kernel, key: Key) -> Launch:
    """The grid, the arguments and the keywords of one launch. Runs code of the user's; what it
    returns in any other shape is a `UsageError` that shows both shapes."""
    made = _inputs(kernel)(**key)
    wrong = _wrong_shape(made)
    if not wrong:
        grid, args, *rest = made
        keywords = dict(rest[0]) if rest else {}
        wrong = _wrong_arguments(kernel, tuple(args), keywords)
        if not wrong:
            return grid, tuple(args), keywords
    raise with_example(
        kernel, f"the inputs function of kernel '{kernel.name}' {wrong}; it must look like this:"
    )


def with_example(kernel: Kernel, message: str) -> UsageError:
    """The error with an `inputs` for this very kernel below it, in three lines."""
    passed, chosen = _parameters(kernel)
    inputs = kernel.tuner.whet_inputs
    names = list(inspect.signature(inputs).parameters) if inputs else list(kernel.tuner.keys)
    size = names[0] if names else "1024"
    block = next((name for name in chosen if "BLOCK" in name), chosen[0] if chosen else "")
    blocks = f'triton.cdiv({size}, meta["{block}"])' if block else size
    comma = "," if len(passed) == 1 else ""
    lines = (
        f"def inputs({', '.join(names)}):",
        f"    grid = lambda meta: ({blocks},)",
        f"    return grid, ({', '.join(passed)}{comma})  # tensors and numbers, in this order",
    )
    error = UsageError(message)
    error.add_note("\n".join(lines))
    return error


def _inputs(kernel: Kernel) -> Callable[..., Any]:
    inputs = kernel.tuner.whet_inputs
    assert inputs is not None
    return inputs


def _wrong_shape(made: Any) -> str:
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        return f"returned {described(made)}, which is not (grid, args) or (grid, args, kwargs)"
    grid, args, *rest = made
    returned = f"returned {described(made)}"
    if not callable(grid) and not _is_grid(grid):
        return f"{returned}, but the first part must be a grid of one to three numbers"
    if not isinstance(args, tuple | list):
        return f"{returned}, but the second part must be a tuple of the kernel's arguments"
    if rest and not isinstance(rest[0], Mapping):
        return f"{returned}, but the third part must be a dict of arguments by name"
    return ""


def _is_grid(grid: Any) -> bool:
    return (
        isinstance(grid, tuple | list)
        and 1 <= len(grid) <= 3
        and all(isinstance(size, Integral) for size in grid)
    )


def _wrong_arguments(kernel: Kernel, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> str:
    names: list[str] = kernel.tuner.arg_names
    returned = f"returned {len(args)} arguments"
    if len(args) > len(names):
        return f"{returned}, but the kernel takes {len(names)}"
    passed, _ = _parameters(kernel)
    missing = [name for name in passed if name not in (*names[: len(args)], *keywords)]
    if missing:
        return f"{returned} and omitted {', '.join(missing)}"
    return ""


def described(value: Any) -> str:
    """`(1,)`, `a Tensor` or `(function, tuple of 3, dict of 1)`: the shape without the contents."""
    if value is None:
        return "None"
    if isinstance(value, tuple):
        return f"({', '.join(map(_part, value))}{',' if len(value) == 1 else ''})"
    text = _part(value)
    return f"an {text}" if text[0] in "aeiou" else f"a {text}"


def _part(value: Any) -> str:
    kind = type(value).__name__
    sized = isinstance(value, tuple | list | dict)
    return f"{kind} of {len(value)}" if sized else kind


def _parameters(kernel: Kernel) -> tuple[list[str], list[str]]:
    """The parameters that a call has to give, and those that the configs choose."""
    tuner = kernel.tuner
    set_by = {name for config in tuner.configs for name in config.kwargs}
    chosen = [name for name in tuner.arg_names if name in set_by]
    computed = set(chosen)
    layer = kernel.launcher
    while not inspect.isfunction(layer):
        computed.update(getattr(layer, "values", ()))  # what a heuristic computes
        layer = layer.fn
    optional = {
        name
        for name, parameter in inspect.signature(layer).parameters.items()
        if parameter.default is not parameter.empty
    }
    return [name for name in tuner.arg_names if name not in computed | optional], chosen
