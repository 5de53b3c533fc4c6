"""`whet bench`: how long something callable takes, or several side by side."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from whet.cli.arguments.locate import file_of, name_in, required_of
from whet.cli.arguments.options import CudaGraphOption, JsonOption, L2Option, argument, option
from whet.cli.terminal.output import print_json, print_lines
from whet.core.errors import UsageError, did_you_mean
from whet.targets.files import guarded, load_module

if TYPE_CHECKING:
    from whet.targets.benching import Bench


def run_bench(
    names: Annotated[
        list[str],
        argument("FILE.py:NAME", "Functions without parameters, or a dictionary of such."),
    ],
    budget: Annotated[
        str | None, option("--budget TIME", "At most so long, all together (default: 2s).")
    ] = None,
    flops: Annotated[
        float | None, option("--flops N", "Operations of one call, for GFLOP/s.")
    ] = None,
    moved: Annotated[float | None, option("--bytes N", "Bytes of one call, for GB/s.")] = None,
    l2: L2Option = None,
    cuda_graph: CudaGraphOption = False,
    json: JsonOption = False,
) -> None:
    """Time functions, several of them in turns; nothing is tuned or stored.

    Examples:
      whet bench calls.py:mine                one function
      whet bench calls.py:torch calls.py:mine side by side: which is faster?
      whet bench calls.py:ways --budget 10s   all of a dictionary
    """
    from whet.targets.benching import bench  # NumPy is not loaded for help

    calls: dict[str, Callable[[], Any]] = {}
    for name in names:
        for called, one in _callables(name).items():
            calls[called if called not in calls else name] = one

    def measured() -> Bench:
        return bench(
            compare=calls,
            budget=budget or "2s",
            flops=flops,
            bytes=moved,
            l2=l2,
            cuda_graph=cuda_graph or None,
        )

    found = guarded(file_of(names[0]), measured)
    if json:
        print_json(found.as_dict())
        return
    print_lines(str(found).splitlines())


def _callables(text: str) -> Mapping[str, Callable[[], Any]]:
    path, name = file_of(text), name_in(text)
    if name is None:
        raise UsageError(f"'{text}' does not say what to time; use {path}:NAME")
    module = load_module(path)
    if not hasattr(module, name):
        raise UsageError(f"{path} has no '{name}'{did_you_mean(name, _offered(module))}")
    value = getattr(module, name)
    found = value if isinstance(value, Mapping) else {name: value}
    for called, one in found.items():
        if not callable(one):
            kind = type(one).__name__
            raise UsageError(f"{path}:{name} has type {kind}; give a function, or several by name")
        needed = required_of(one)
        if needed:
            raise UsageError(
                f"{called} requires arguments ({', '.join(needed)}); write a function without "
                "parameters that calls it"
            )
    return found


def _offered(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, Mapping))
    ]
