"""What is recorded of a call, and its arguments made again without the program it came from."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from whet.core.config import freeze_value
from whet.core.errors import SpaceError, UsageError
from whet.core.frozen import FrozenMap
from whet.core.miss import Argument, LaunchGrid, Miss, Placement, ValueRange
from whet.targets.triton import device
from whet.targets.triton.call import Call
from whet.targets.triton.keys import argument_value, written

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


# What an allocator of torch's gives at least, and the most that is recorded.
_MOST_ALIGNED = 512

# What Triton specializes a kernel on.
_SPECIAL_ALIGNMENT = 16

_REMEDY = "give the kernel inputs=, or the command --inputs FILE.py:FUNCTION"


def recorded_inputs(
    name: str, miss: Miss, *, without_memory: bool = False
) -> Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """What `inputs=` would be: the launch of this call, its numbers drawn anew. Raises `UsageError`
    that names what cannot be made again, and why. `without_memory` is for compiling alone."""
    if not miss.grids:
        raise UsageError(
            f"the recorded call of '{name}' has no grid, so it cannot be made again; {_REMEDY}"
        )
    wrong = [f"'{one.name}' {why}" for one, why in unmakeable(miss.arguments)]
    if wrong:
        raise UsageError(
            f"the recorded call of '{name}' cannot be made again: {'; '.join(wrong)}; {_REMEDY}"
        )

    def inputs() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        values = _Making(name, without_memory).values(miss.arguments)
        names = list(values)
        args = tuple(values[one] for one in names[: miss.positional])
        return _grid(miss.grids), args, {one: values[one] for one in names[miss.positional :]}

    return inputs


def unmakeable(arguments: Sequence[Argument]) -> list[tuple[Argument, str]]:
    """Each argument that cannot be made again, and why."""
    floating = floating_storages(arguments)
    found = [(one, _unmakeable(one, floating)) for one in arguments]
    found = [(one, why) for one, why in found if why]
    if found:
        return found
    places = {one.placement.storage: one for one in arguments if one.placement is not None}
    return [
        (one, f"was aligned to {one.placement.aligned} bytes, which torch cannot repeat")
        for place, one in places.items()
        if one.placement is not None and _shift(_of_storage(arguments, place)) is None
    ]


def _unmakeable(one: Argument, floating: set[int]) -> str:
    if not one.dtype:
        if one.value is None and one.type != "NoneType":
            return f"is of type {one.type}, of which nothing was recorded"
        try:
            argument_value(one)
        except ValueError as error:
            return f"is {one.value}: {error}"
        return ""
    if one.placement is None:
        return f"is a {one.type} that is not a dense tensor of torch's"
    placed = one.placement
    count: int = math.prod(one.shape)
    if len(placed.stride) != len(one.shape) or min(*one.shape, *placed.stride, placed.offset, 0):
        return "has a shape that no tensor has"
    if not is_integer(one.dtype) or placed.storage in floating or not count:
        return ""
    if isinstance(one.value, tuple) and len(one.value) == count:
        return ""
    if one.ranges:
        fits = len(one.ranges) in (1, one.shape[-1] if one.shape else 1)
        return "" if fits else "has ranges that do not fit its shape"
    return (
        f"is {one.dtype.removeprefix('torch.')} with {count:,} elements, and neither its contents "
        "nor their range were recorded (WHET_RECORD_VALUES was 0, or a CUDA graph was being "
        "captured)"
    )


def _of_storage(arguments: Sequence[Argument], storage: int) -> list[tuple[int, Placement]]:
    """The size of an element and the place of every tensor in that memory that has elements."""
    return [
        (_item(one.dtype), one.placement)
        for one in arguments
        if one.placement is not None and one.placement.storage == storage and 0 not in one.shape
    ]


def _item(dtype: str) -> int:
    """In bytes, by its name: `float8_e4m3fn` has 8 bits."""
    name = dtype.removeprefix("torch.")
    digits = "".join(character for character in name.partition("_")[0] if character.isdigit())
    return max(1, int(digits) // 8) if digits else 1


def _shift(tensors: Sequence[tuple[int, Placement]]) -> int | None:
    """By how many bytes all tensors of one memory have to begin later to be aligned as they were,
    or at least so that kernels are specialized as they were; None where nothing does it."""
    step = math.lcm(*(item for item, _ in tensors))
    for enough in (_MOST_ALIGNED, _SPECIAL_ALIGNMENT):
        for shift in range(0, _MOST_ALIGNED, step):
            if all(
                _aligned(shift + placed.offset * item, enough) == min(placed.aligned, enough)
                for item, placed in tensors
            ):
                return shift
    return None


def _aligned(address: int, most: int) -> int:
    return min(most, address & -address) if address else most


class _Making:
    """Tensors that shared memory share it again, at the same distance. On the `meta` device they
    have no memory, and nothing is drawn."""

    def __init__(self, kernel: str, without_memory: bool) -> None:
        try:
            import torch
        except ImportError:
            raise UsageError(
                f"making the arguments of '{kernel}' takes torch; install it"
            ) from None
        self._torch = torch
        if without_memory:
            self._device = torch.device("meta")
        elif torch.cuda.is_available():
            self._device = torch.device("cuda", device.current_index())
        else:
            self._device = torch.device("cpu")
        self._draws = None if without_memory else torch.Generator(self._device).manual_seed(0)

    def values(self, arguments: Sequence[Argument]) -> dict[str, Any]:
        """By name. Memory that is seen as integers and as floating-point numbers holds the
        latter."""
        made: dict[str, Any] = {}
        storages: dict[int, Any] = {}
        floating = floating_storages(arguments)
        for one in sorted(arguments, key=lambda one: is_integer(one.dtype)):
            if one.placement is None:
                made[one.name] = argument_value(one)
                continue
            place, dtype = one.placement.storage, self._dtype(one)
            shift = _shift(_of_storage(arguments, place)) or 0
            if place not in storages:
                storages[place] = self._storage(arguments, place, shift)
                if place in floating and self._draws is not None:
                    self._fill(self._whole(storages[place], dtype))
            tensor = made[one.name] = self._torch.empty(0, dtype=dtype, device=self._device)
            begin = one.placement.offset + shift // _item(one.dtype)
            tensor.set_(storages[place], begin, one.shape, one.placement.stride)
            if place not in floating and self._draws is not None and tensor.numel():
                self._write(tensor, self._integers(one, dtype))
        return {one.name: made[one.name] for one in arguments}

    def _storage(self, arguments: Sequence[Argument], place: int, shift: int) -> Any:
        size = max(
            _item(one.dtype) * _extent(one.shape, one.placement)
            for one in arguments
            if one.placement is not None and one.placement.storage == place
        )
        torch = self._torch
        bytes_ = torch.empty(size + shift, dtype=torch.uint8, device=self._device)
        return bytes_.untyped_storage()

    def _whole(self, storage: Any, dtype: Any) -> Any:
        return self._torch.empty(0, dtype=dtype, device=self._device).set_(storage)

    def _fill(self, whole: Any) -> None:
        """The memory and not the views: these may have one element in several places."""
        try:
            whole.normal_(generator=self._draws)
        except (RuntimeError, NotImplementedError):  # of 8 bits
            drawn = self._torch.empty(whole.shape, dtype=self._torch.float16, device=self._device)
            whole.copy_(drawn.normal_(generator=self._draws))

    def _write(self, tensor: Any, contents: Any) -> None:
        try:
            tensor.copy_(contents)
        except RuntimeError:  # one element is in several places, as in what `expand` returns
            places = self._torch.tensor(tensor.storage_offset(), device=self._device)
            for size, step in zip(tensor.shape, tensor.stride(), strict=True):
                along = self._torch.arange(size, device=self._device) * step
                places = places.unsqueeze(-1) + along
            whole = self._whole(tensor.untyped_storage(), tensor.dtype)
            whole[places.flatten()] = contents.flatten()

    def _integers(self, one: Argument, dtype: Any) -> Any:
        if not one.ranges:
            found = self._torch.tensor(one.value, dtype=dtype, device=self._device)
            return found.view(one.shape)
        width = len(one.ranges)
        count = math.prod(one.shape) // width
        columns = [self._drawn(spread, count) for spread in one.ranges]
        return self._torch.stack(columns, dim=1).view(one.shape).to(dtype)

    def _drawn(self, spread: ValueRange, count: int) -> Any:
        """With both ends in it, in the recorded order."""
        torch = self._torch
        room = count - 1 if spread.strict else 0
        top = max(spread.low, min(spread.high - room, 2**63 - 2))
        found = torch.randint(
            spread.low, top + 1, (count,), device=self._device, generator=self._draws
        )
        if spread.rising:
            found = found.sort().values
        if spread.strict:
            found = found + torch.arange(count, device=self._device)
        found[0], found[-1] = spread.low, spread.high
        return found

    def _dtype(self, one: Argument) -> Any:
        found = getattr(self._torch, one.dtype.removeprefix("torch."), None)
        if not isinstance(found, self._torch.dtype):
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
