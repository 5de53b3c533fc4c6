"""A decorated kernel, as the command line finds it in a file, and the arguments of its launches."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from triton.runtime import autotuner as stock

from whet.core.errors import UsageError, did_you_mean
from whet.targets.triton.autotuner import Autotuner


@dataclass(frozen=True)
class Kernel:
    """`launcher[grid](…)` is a call of the kernel; `tuner` is the `whet.autotune` inside it.

    `stock` says that its file has `triton.autotune`. `where` and `inputs_from` are what was typed
    for the kernel and for its `--inputs`, to be repeated in advice.
    """

    launcher: Any
    tuner: Autotuner
    stock: bool = False
    where: str = ""
    inputs_from: str = ""

    @property
    def name(self) -> str:
        return str(self.tuner.base_fn.__name__)


def kernel_of(value: Any) -> Kernel | None:
    """The kernel that a decorated object is, also where `triton.heuristics` is on the outside."""
    tuner = value
    while not isinstance(tuner, Autotuner):
        tuner = getattr(tuner, "fn", None)
        if tuner is None:
            return None
    return Kernel(value, tuner)


def taken_over(value: Any) -> Kernel | None:
    """What the kernel would be had `whet.install()` come before its decorators; None where
    Triton's `autotune` is not among them. The object itself is left as it was."""
    wrappers: list[Any] = []
    layer = value
    while not isinstance(layer, stock.Autotuner):
        wrappers.append(layer)
        layer = getattr(layer, "fn", None)
        if layer is None:
            return None
    tuner = _ours(layer)
    launcher: Any = tuner
    for wrapper in reversed(wrappers):
        outside = copy.copy(wrapper)
        outside.fn = launcher
        launcher = outside
    return Kernel(launcher, tuner, stock=True)


def _ours(theirs: Any) -> Autotuner:
    own_pre, own_post = theirs.user_defined_pre_hook, theirs.user_defined_post_hook
    # Where warmup, rep or use_cuda_graph is given, Triton makes a benchmark of them itself.
    made = theirs.num_warmups is not None or theirs.num_reps is not None or theirs.use_cuda_graph
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # said when the file was loaded
        return Autotuner(
            theirs.fn,
            theirs.arg_names,
            theirs.configs,
            theirs.keys,
            theirs.reset_to_zero,
            theirs.restore_value,
            pre_hook=theirs.pre_hook if own_pre else None,
            post_hook=theirs.post_hook if own_post else None,
            prune_configs_by={
                "perf_model": theirs.perf_model,
                "top_k": theirs.configs_top_k,
                "early_config_prune": theirs.early_config_prune,
            },
            warmup=theirs.num_warmups,
            rep=theirs.num_reps,
            use_cuda_graph=theirs.use_cuda_graph,
            do_bench=None if made else theirs._do_bench,
            cache_results=theirs.cache_results,
        )


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
