"""Arguments that Triton specializes like those of a recorded call. They have no memory: nothing is
launched with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import Parameter
from typing import Any

from whet.targets.triton.jit.constants import NotReproducibleError, decoded
from whet.targets.triton.jit.specialization import CONSTANT, DIVISIBLE, Specialization

_DESCRIPTOR = re.compile(r"tensordesc<([a-z0-9]+)\[([0-9, ]*)\]>")
_ALIGNED, _UNALIGNED = 4096, 4104
_FIRST = {"i32": 1 << 4, "i64": 1 << 33, "u64": 1 << 63}


class MockPointer:
    """What Triton asks a tensor for."""

    def __init__(self, dtype: str, special: Any) -> None:
        self.dtype = dtype
        self._special = special if isinstance(special, str) else DIVISIBLE

    def data_ptr(self) -> int:
        return _ALIGNED if DIVISIBLE in self._special else _UNALIGNED

    def ptr_range(self) -> int:
        """AMD's backend looks whether a tensor is smaller than 2 GiB."""
        return 0 if "S" in self._special else 1 << 40


def mock_call(
    jit: Any, one: Specialization, kernel: Callable[[str], Any]
) -> tuple[list[Any], dict[str, Any]]:
    """What `jit.run` is called with, by place and by name; `kernel` finds a `JITFunction`.

    Arguments go by place, since one that is passed by name also sets an option of the same name.
    Raises `NotReproducibleError`.
    """
    places: list[Any] = []
    names = {name: decoded(value, kernel) for name, value in one.options}
    by_name = False
    for argument in one.arguments:
        value = _value(
            decoded(argument.type, kernel), decoded(argument.special, kernel), argument.name
        )
        parameter = jit.signature.parameters.get(argument.name)
        if parameter is None:
            raise NotReproducibleError(f"the kernel has no argument {argument.name}")
        if parameter.kind is Parameter.VAR_POSITIONAL:
            places += value
            by_name = True
            continue
        by_name = by_name or argument.is_option or parameter.kind is Parameter.KEYWORD_ONLY
        if not by_name:
            places.append(value)
        elif argument.is_option or not _is_default(value, parameter):
            names[argument.name] = value
    return places, names


def _is_default(value: Any, parameter: Parameter) -> bool:
    """So that it need not be passed, which would set an option."""
    default = parameter.default
    return default is value or (type(default) is type(value) and bool(default == value))


def _value(kind: Any, special: Any, name: str) -> Any:
    if isinstance(kind, tuple):
        specials = special if isinstance(special, tuple) else (special,) * len(kind)
        parts = [_value(k, s, name) for k, s in zip(kind, specials, strict=True)]
        return type(kind)(*parts) if hasattr(kind, "_fields") else tuple(parts)
    if kind == CONSTANT:
        return special
    text = str(kind)
    if text.startswith("*"):
        return MockPointer(text[1:].removeprefix("k"), special)
    if text.startswith("tensordesc"):
        return _descriptor(text, name)
    if text in ("u1", "i1"):
        return True
    if text.startswith(("fp", "bf", "f")):
        return 0.5
    if text[:1] in ("i", "u"):
        if special == 1:
            return 1
        return _FIRST.get(text, 1 << 4) + (special != DIVISIBLE)
    raise NotReproducibleError(f"argument {name} has the type {text}, which cannot be made again")


def _descriptor(text: str, name: str) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    found = _DESCRIPTOR.fullmatch(text)
    if found is None:
        raise NotReproducibleError(f"argument {name} is a descriptor with a layout: {text}")
    block = [int(part) for part in found[2].split(",") if part.strip()]
    made: Any = TensorDescriptor.__new__(TensorDescriptor)  # its checks look at real memory
    made.base = MockPointer(found[1], DIVISIBLE)
    made.shape, made.block_shape, made.padding = block, block, "zero"
    made.strides = [1] * len(block)
    return made
