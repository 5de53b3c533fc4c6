"""The arguments of a call: what tells it apart from others, and what must be put back."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from whet.core.config import freeze_value
from whet.core.errors import SpaceError
from whet.measure.bench.protocol import DeviceRoom, is_out_of_memory


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


# A tuple of more parts is data rather than sizes or strides.
_MOST_PARTS = 8


def described(value: Any) -> tuple[Any, ...] | None:
    """Plain constants that stand for a value; None for what has nothing to compare.

    Dynamo traces it: under torch.compile a size may be symbolic, and is then pinned down.
    """
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        sizes = tuple([operator.index(n) for n in value.shape])
        return (str(value.dtype), sizes, _strides(value, sizes))
    if value is None or isinstance(value, bool | float | str):
        return (value,)
    if isinstance(value, int):
        return (operator.index(value),)
    if isinstance(value, tuple | list):
        return _container(value)
    return None


def _container(value: Sequence[Any]) -> tuple[Any, ...] | None:
    """The parts of a short tuple or of some tensors; else what a key has room for."""
    holds_tensors = any([hasattr(one, "dtype") for one in value])  # noqa: C419, for Dynamo
    if 0 < len(value) <= _MOST_PARTS and (holds_tensors or isinstance(value, tuple)):
        parts = tuple([described(one) for one in value])
        if None not in parts:
            return ("parts", *parts)
    kinds: list[str] = []
    for one in value:
        kind = str(one.dtype) if hasattr(one, "dtype") else type(one).__name__
        if kind not in kinds:
            kinds.append(kind)
    return ("length", len(value), " ".join(sorted(kinds)))


def _strides(value: Any, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """None where they follow from the sizes."""
    if not hasattr(value, "is_contiguous") or value.is_contiguous():
        return None
    return tuple([operator.index(n) for n in value.stride()])


def key_entries(name: str, description: tuple[Any, ...] | None) -> dict[str, Any]:
    """Numbers stand alone, so that what is known of other sizes can be inherited."""
    if description is None:
        return {}
    if len(description) == 1:
        with suppress(SpaceError):
            return {name: freeze_value(description[0])}
        return {}
    if description[0] == "length":
        return {f"{name}.length": description[1], f"{name}.type": description[2]}
    if description[0] == "parts":
        parts = [key_entries(f"{name}.{i}", one) for i, one in enumerate(description[1:])]
        return {name: value for part in parts for name, value in part.items()}
    dtype, sizes, strides = description
    entries: dict[str, Any] = {f"{name}.dtype": dtype.removeprefix("torch.")}
    entries |= {f"{name}.{place}": size for place, size in enumerate(sizes)}
    if strides is not None:
        entries[f"{name}.strides"] = "x".join(map(str, strides))
    return entries


def is_module(value: Any) -> bool:
    nn = sys.modules.get("torch.nn")
    return nn is not None and isinstance(value, nn.Module)


def differentiated(values: Any) -> list[Any]:
    """The tensors that a call is differentiated by, parameters of modules among them."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.is_grad_enabled():
        return []
    found: list[Any] = []
    for one in flattened(values):
        found += list(one.parameters()) if is_module(one) else [one] if is_tensor(one) else []
    return [one for one in found if one.requires_grad]


def device_index(values: Sequence[Any]) -> int | None:
    """Of the first tensor on a GPU; None where there is none."""
    for one in flattened(values):
        if is_tensor(one) and one.is_cuda:
            return int(one.device.index)
    return None


def flattened(values: Any) -> Iterator[Any]:
    """What lists, tuples and dictionaries hold, in their order."""
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list | tuple):
        for one in values:
            yield from flattened(one)
    else:
        yield values


class Saved:
    """Copies of a call's arrays, to see what an implementation changes and to undo it."""

    def __init__(self, named: Mapping[str, Any], room: DeviceRoom) -> None:
        self._room = room
        self.arrays: dict[str, Any] = {}
        for name, value in named.items():
            held = [one for one in flattened(value) if _is_array(one)]
            places = [name] if len(held) == 1 else [f"{name}[{i}]" for i in range(len(held))]
            self.arrays.update(zip(places, held, strict=True))
        self._copies: dict[str, Any] = {}
        self.unsaved: list[str] = []

    def save(self) -> None:
        for name, array in self.arrays.items():
            if name in self._copies or name in self.unsaved:
                continue
            try:
                self._copies[name] = self._room.take(_size(array), lambda a=array: copied(a))  # type: ignore[misc]
            except Exception as problem:
                if not is_out_of_memory(problem):
                    raise
                self.unsaved.append(name)

    def changed(self) -> dict[str, Any]:
        """Those that differ from their copies, by name."""
        return {
            name: self.arrays[name]
            for name, copy in self._copies.items()
            if not _same(self.arrays[name], copy)
        }

    def restore(self) -> None:
        for name in self.changed():
            _put_back(self.arrays[name], self._copies[name])

    def let_go(self) -> None:
        self._copies.clear()


def _is_array(value: Any) -> bool:
    return is_tensor(value) or (type(value).__module__ == "numpy" and hasattr(value, "copy"))


def _size(array: Any) -> int:
    return int(array.nbytes) if is_tensor(array) and array.is_cuda else 0


def copied(array: Any) -> Any:
    return array.detach().clone() if is_tensor(array) else array.copy()


def _same(one: Any, two: Any) -> bool:
    """Bit for bit but for the kinds of NaN."""
    if is_tensor(one):
        one = one.detach()
        if sys.modules["torch"].equal(one, two):
            return True
    return bool(((one == two) | ((one != one) & (two != two))).all())


def _put_back(array: Any, copy: Any) -> None:
    if not is_tensor(array):
        array[...] = copy
        return
    torch = sys.modules["torch"]
    with torch.no_grad():
        # As `.data`, so that a tensor that autograd has saved is not taken for changed.
        array.data.copy_(copy)
