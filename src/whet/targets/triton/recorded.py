"""Calls that were recorded, made again without the program they came from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whet.core.config import freeze_value
from whet.core.errors import SpaceError, UsageError
from whet.core.frozen import FrozenMap
from whet.core.miss import Argument, LaunchGrid, Miss, Placement
from whet.targets.triton import device
from whet.targets.triton.call import Call

# What Triton specializes a kernel on.
_SPECIAL_ALIGNMENT = 16

_REMEDY = "give the kernel inputs=, or the command --inputs FILE.py:FUNCTION"


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


def integer_contents(named: Mapping[str, Any], most: int) -> dict[str, tuple[int, ...]]:
    """Offsets, indices and the like, which decide what a kernel does. Copying them waits for the
    device, which a CUDA graph that is being captured would not survive."""
    if device.capturing():
        return {}
    found = {}
    for name, value in named.items():
        try:
            placed = hasattr(value, "untyped_storage") and _is_integer(str(value.dtype))
            if placed and value.numel() <= most:
                found[name] = tuple(value.flatten().tolist())
        except Exception:  # nothing in it, or none of torch's after all
            continue
    return found


def _is_integer(dtype: str) -> bool:
    return dtype.removeprefix("torch.").startswith(("int", "uint", "bool"))


def recorded_inputs(name: str, miss: Miss) -> Callable[[], Any]:
    """What `inputs=` would be: the launch of this call, its numbers drawn anew. Raises `UsageError`
    that names what cannot be made again, and why."""
    if not miss.grids:
        raise UsageError(
            f"the recorded call of '{name}' has no grid, so it cannot be made again; {_REMEDY}"
        )
    wrong = [f"'{one.name}' {why}" for one in miss.arguments if (why := _unmakeable(one))]
    if wrong:
        raise UsageError(
            f"the recorded call of '{name}' cannot be made again: {'; '.join(wrong)}; {_REMEDY}"
        )

    def inputs() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        values = _values(name, miss.arguments)
        names = list(values)
        args = tuple(values[one] for one in names[: miss.positional])
        return _grid(miss.grids), args, {one: values[one] for one in names[miss.positional :]}

    return inputs


def _unmakeable(one: Argument) -> str:
    if not one.dtype:
        known = one.value is not None or one.type == "NoneType"
        return "" if known else f"is of type {one.type}, of which nothing was recorded"
    if one.placement is None:
        return f"is a {one.type} that is not a dense tensor of torch's"
    placed = one.placement
    if len(placed.stride) != len(one.shape) or min(*one.shape, *placed.stride, placed.offset, 0):
        return "has a shape that no tensor has"
    if isinstance(one.value, tuple) and len(one.value) == math.prod(one.shape):
        return ""
    if not _is_integer(one.dtype):
        return ""
    return (
        f"is {one.dtype.removeprefix('torch.')} with {math.prod(one.shape):,} elements, and its "
        "contents were not recorded (set WHET_RECORD_VALUES to record more)"
    )


def _values(name: str, arguments: Sequence[Argument]) -> dict[str, Any]:
    """By name; tensors that shared memory share it again."""
    try:
        import torch
    except ImportError:
        raise UsageError(f"making the arguments of '{name}' takes torch; install it") from None
    here = torch.device("cuda", device.current_index()) if torch.cuda.is_available() else "cpu"
    sizes: dict[int, int] = {}
    for one in arguments:
        if one.placement is not None:
            item = torch.empty(0, dtype=_dtype(torch, one)).element_size()
            needed = item * _extent(one.shape, one.placement)
            place = one.placement.storage
            sizes[place] = max(sizes.get(place, 0), needed)
    storages = {
        place: torch.empty(size, dtype=torch.uint8, device=here).untyped_storage()
        for place, size in sizes.items()
    }
    made: dict[str, Any] = {}
    filled: set[int] = set()
    for one in arguments:
        if one.placement is None:
            made[one.name] = one.value
            continue
        tensor = made[one.name] = torch.empty(0, dtype=_dtype(torch, one), device=here)
        storage = storages[one.placement.storage]
        if one.placement.storage not in filled and not _is_integer(one.dtype):
            filled.add(one.placement.storage)
            _fill(torch, tensor.set_(storage))
        tensor.set_(storage, one.placement.offset, one.shape, one.placement.stride)
        if _is_integer(one.dtype):
            contents = torch.tensor(one.value, dtype=tensor.dtype, device=here)
            tensor.copy_(contents.view(one.shape))
        _check_alignment(one, one.placement, tensor)
    return made


def _fill(torch: Any, whole: Any) -> None:
    """The storage and not the views: these may have one element in several places."""
    try:
        whole.normal_()
    except (RuntimeError, NotImplementedError):  # of 8 bits
        whole.copy_(torch.randn(whole.shape, dtype=torch.float16, device=whole.device))


def _check_alignment(one: Argument, placement: Placement, tensor: Any) -> None:
    special = tensor.numel() and tensor.data_ptr() % _SPECIAL_ALIGNMENT == 0
    if special and placement.aligned < _SPECIAL_ALIGNMENT:
        raise UsageError(
            f"'{one.name}' was aligned to {placement.aligned} bytes only, which cannot be made "
            f"again; {_REMEDY}"
        )


def _dtype(torch: Any, one: Argument) -> Any:
    found = getattr(torch, one.dtype.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise UsageError(f"'{one.name}' has dtype {one.dtype}, which this torch does not know")
    return found


def _extent(shape: Sequence[int], placement: Placement) -> int:
    """Elements from the begin of the storage to the last that is reached."""
    if not math.prod(shape):
        return placement.offset
    last = sum((size - 1) * step for size, step in zip(shape, placement.stride, strict=True))
    return placement.offset + last + 1


def _grid(grids: Sequence[LaunchGrid]) -> Any:
    if len(grids) == 1 and not grids[0].values:
        return grids[0].size

    def grid(meta: Mapping[str, Any]) -> tuple[int, ...]:
        for one in grids:
            if all(name in meta and _same(meta[name], v) for name, v in one.values.items()):
                return one.size
        raise UsageError("the recorded call has no grid for this config; record it again")

    return grid


def _same(value: Any, recorded: Any) -> bool:
    try:
        return bool(freeze_value(getattr(value, "value", value)) == recorded)
    except SpaceError:
        return False
