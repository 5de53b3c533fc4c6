"""What is recorded of a call, so that it can be made again without the program it came from."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from whet.core.config import freeze_value
from whet.core.frozen import FrozenMap
from whet.core.miss import Argument, LaunchGrid, ValueRange
from whet.targets.triton import device
from whet.targets.triton.call import Call
from whet.targets.triton.keys import written

# A last dimension up to this long holds pairs and the like, each column with a range of its own.
_MOST_COLUMNS = 8

# Beyond, comparing neighbours would take as much memory again as a program may have left.
_MOST_COMPARED = 2**26


def recorded_grids(call: Call, configs: Sequence[Any]) -> tuple[LaunchGrid, ...]:
    """The grid of each config; a function that fails for one says nothing about it."""
    grid = call.keywords.get("grid")
    if not callable(grid):
        return () if grid is None else (LaunchGrid(FrozenMap(), _size(grid)),)
    found: dict[FrozenMap[Any], tuple[int, ...]] = {}
    for config in configs:
        try:
            values = {name: freeze_value(value) for name, value in config.kwargs.items()}
            found[FrozenMap(values)] = _size(grid(call.full(config)))
        except Exception:  # a value that JSON cannot hold, or one that only a heuristic adds
            continue
    return tuple(LaunchGrid(values, size) for values, size in found.items())


def _size(grid: Any) -> tuple[int, ...]:
    return tuple(int(one) for one in (grid if isinstance(grid, tuple | list) else (grid,)))


def importable_name(tuner: Any) -> str:
    """Of the kernel's module, where importing that name runs the kernel's own file."""
    name = str(tuner.base_fn.__module__)
    module = sys.modules.get(name)
    if module is None or getattr(module, "__file__", None) != tuner.base_fn.__code__.co_filename:
        return ""
    if name == "__main__":
        return str(getattr(getattr(module, "__spec__", None), "name", None) or "")
    return "" if name.startswith("whet_file_") else name


def as_compiled(
    tuner: Any, named: Mapping[str, Any], arguments: Sequence[Argument]
) -> tuple[Argument, ...]:
    """With what Triton makes of each parameter, and with values that JSON has no word for."""
    fn = tuner.fn
    while fn is not None and not hasattr(fn, "params"):
        fn = getattr(fn, "fn", None)
    kinds: dict[str, str] = {}
    for parameter in getattr(fn, "params", ()):
        if parameter.is_constexpr:
            kinds[parameter.name] = "constant"
        elif getattr(parameter, "do_not_specialize", False):
            kinds[parameter.name] = "plain"
    return tuple(
        replace(_as_text(one, named[one.name]), compiled=kinds.get(one.name, ""))
        for one in arguments
    )


def _as_text(one: Argument, value: Any) -> Argument:
    found = written(value)
    return one if found is None else replace(one, type=found[0], value=found[1])


def with_integers(
    named: Mapping[str, Any], arguments: Sequence[Argument], most: int
) -> tuple[Argument, ...]:
    """Offsets, indices and the like, which decide what a kernel does: the contents of small ones
    and the ranges of others. Copying them waits for the device, which a CUDA graph that is being
    captured would not survive."""
    if device.capturing():
        return tuple(arguments)
    floating = floating_storages(arguments)
    return tuple(
        one
        if one.placement is None or one.placement.storage in floating or not is_integer(one.dtype)
        else _with_contents(one, named[one.name], most)
        for one in arguments
    )


def _with_contents(one: Argument, tensor: Any, most: int) -> Argument:
    try:
        if tensor.numel() <= most:
            return replace(one, value=tuple(tensor.flatten().tolist()))
        return replace(one, ranges=_ranges(tensor))
    except Exception:  # none of torch's after all, or of a dtype that cannot be compared
        return one


def _ranges(tensor: Any) -> tuple[ValueRange, ...]:
    by_column = tensor.dim() > 1 and tensor.shape[-1] <= _MOST_COLUMNS
    rows = tensor.reshape(-1, tensor.shape[-1] if by_column else 1)
    if str(rows.dtype) == "torch.bool":
        rows = rows.byte()
    low, high = rows.amin(0).tolist(), rows.amax(0).tolist()
    rising = strict = [False] * len(low)
    if rows.numel() <= _MOST_COMPARED:
        rising = (rows[1:] >= rows[:-1]).all(0).tolist()
        strict = (rows[1:] > rows[:-1]).all(0).tolist()
    return tuple(map(ValueRange, low, high, rising, strict))


def floating_storages(arguments: Sequence[Argument]) -> set[int]:
    """Memory that an argument sees as floating-point numbers, whatever others see in it."""
    return {
        one.placement.storage
        for one in arguments
        if one.placement is not None and not is_integer(one.dtype)
    }


def is_integer(dtype: str) -> bool:
    return dtype.removeprefix("torch.").startswith(("int", "uint", "bool"))
