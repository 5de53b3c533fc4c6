"""One binary that Triton makes of a kernel: for which arguments, constants and options.

Values that a kernel is compiled for are written as JSON. Reading one back imports nothing and calls
nothing of what it names: kernels and dtypes are looked up, and everything else is plain data.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections import namedtuple
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from inspect import Parameter
from typing import Any

from whet.core.lazy import cached_property
from whet.targets.triton.compiler.capture import CompileCall

_OPAQUE = "opaque"
_LONGEST = 200
_DEEPEST = 16


class NotReproducibleError(TypeError):
    """A value that cannot be made again from what was written down of it."""


def encoded(value: Any, depth: int = 0) -> Any:
    """What has no form of its own becomes `{"opaque": …}`, which tells what it was."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, tuple | list) and depth < _DEEPEST:
        kind = "tuple" if isinstance(value, tuple) else "list"
        items: dict[str, Any] = {kind: [encoded(one, depth + 1) for one in value]}
        if hasattr(value, "_fields"):
            items |= {"name": type(value).__name__, "fields": list(value._fields)}
        return items
    if isinstance(value, Enum):
        return _of_enum(value)
    return _of_triton(value, {kind.__name__ for kind in type(value).__mro__}, depth)


def _of_enum(value: Enum) -> Any:
    """By name: Triton's key has the text of a member, which its number alone does not give."""
    kind = type(value)
    written = {"enum": f"{kind.__module__}:{kind.__qualname__}", "member": str(value.name)}
    return written if _member(written) is value else {_OPAQUE: repr(value)[:_LONGEST]}


def _member(written: dict[str, Any]) -> Any:
    module, _, name = str(written["enum"]).partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    if not (isinstance(found, type) and issubclass(found, Enum)):
        return None
    return found.__members__.get(str(written.get("member")))


def _of_triton(value: Any, kinds: set[str], depth: int) -> Any:
    if "constexpr" in kinds and depth < _DEEPEST:
        return {"constexpr": encoded(value.value, depth + 1)}
    if "JITFunction" in kinds:
        return {"kernel": kernel_name(value)}
    if "dtype" in kinds:
        if type(value).__module__ == "torch":
            return {"torch": str(value).removeprefix("torch.")}
        if type(value).__name__ == "dtype":
            return {"dtype": str(value)}
    return {_OPAQUE: repr(value)[:_LONGEST]}


def decoded(value: Any, kernel: Callable[[str], Any]) -> Any:
    """`kernel` finds a `JITFunction` by name. Raises `NotReproducibleError`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if not isinstance(value, dict):
        raise NotReproducibleError(f"{value!r} is not a constant of a kernel")
    if "tuple" in value or "list" in value:
        return _sequence(value, kernel)
    if "constexpr" in value:
        import triton.language as tl

        return tl.constexpr(decoded(value["constexpr"], kernel))
    if "kernel" in value:
        return kernel(str(value["kernel"]))
    return _plain(value)


def _sequence(value: dict[str, Any], kernel: Callable[[str], Any]) -> Any:
    items = [decoded(one, kernel) for one in value.get("tuple", value.get("list", ()))]
    if "list" in value:
        return items
    fields = value.get("fields")
    if fields is None:
        return tuple(items)
    try:
        return namedtuple(str(value["name"]), [str(one) for one in fields])(*items)
    except (ValueError, TypeError, KeyError) as error:
        raise NotReproducibleError(f"a tuple with such fields cannot be made: {error}") from None


def _plain(value: dict[str, Any]) -> Any:
    if "float" in value:
        return float(value["float"])
    if "dtype" in value:
        import triton.language as tl

        try:
            return tl.dtype(str(value["dtype"]))
        except (AssertionError, ValueError, RuntimeError) as error:
            raise NotReproducibleError(f"{value['dtype']!r} is not a dtype: {error}") from None
    if "torch" in value:
        found = getattr(sys.modules.get("torch"), str(value["torch"]), None)
        if type(found).__name__ == "dtype":
            return found
    if "enum" in value:
        found = _member(value)
        if found is None:
            raise NotReproducibleError(f"{shown(value)} does not exist in this process")
        return found
    raise NotReproducibleError(f"{value.get(_OPAQUE, value)} has no form that can be written down")


def is_opaque(value: Any) -> bool:
    """Whether it, or something in it, cannot be made again."""
    if not isinstance(value, dict):
        return False
    inside = value.get("tuple", value.get("list"))
    if inside is not None:
        return any(map(is_opaque, inside))
    return _OPAQUE in value or is_opaque(value.get("constexpr"))


def shown(value: Any) -> str:
    """For a person."""
    if not isinstance(value, dict):
        return repr(value) if isinstance(value, str) else str(value)
    inside = value.get("tuple", value.get("list"))
    if inside is not None:
        return f"({', '.join(map(shown, inside))})"
    if "enum" in value:
        return f"{str(value['enum']).rpartition(':')[2]}.{value.get('member')}"
    return shown(next(iter(value.values()))).strip("'")


def kernel_name(jit: Any) -> str:
    """`package.module:function`, as Triton's own registry has it."""
    return f"{jit.fn.__module__}:{jit.fn.__qualname__}"


DIVISIBLE = "D"
INTEGERS = ("i32", "i64", "u64")
CONSTANT = "constexpr"

_TEXTS = {DIVISIBLE: "divisible by 16", "": "not divisible by 16", None: ""}


class RecordError(ValueError):
    """A line that describes no specialization."""


@dataclass(frozen=True)
class JitArgument:
    """`type` and `special` are what Triton makes of the value: `i32` and `D`, or `constexpr` and
    the constant. `declared` is the type that the kernel's author wrote, `constexpr` included: an
    integer of a declared type is `i64` and 1 where it is 1. `value` is an integer with which it was
    met. With `specialize` false Triton looks at the type alone, with `align` false not at
    divisibility. `is_option` is one that also sets an option, as `launch_pdl` does where a kernel
    has it as an argument: Triton takes options from what is passed by keyword."""

    name: str
    type: Any
    special: Any
    value: int | None = None
    declared: str = ""
    specialize: bool = True
    align: bool = True
    is_option: bool = False

    @property
    def is_integer(self) -> bool:
        """An integer whose value may be another in the next call."""
        if self.declared == CONSTANT:
            return False
        one = self.type == CONSTANT and self.special == 1 and not isinstance(self.special, bool)
        return one or self.type in INTEGERS

    @property
    def is_one(self) -> bool:
        """1, and told apart for that, without becoming a constant."""
        return self.type != CONSTANT and self.special == 1 and not isinstance(self.special, bool)

    @property
    def is_pointer(self) -> bool:
        return isinstance(self.type, str) and self.type.startswith("*")

    @property
    def property_text(self) -> str:
        """What is special about it, for a person."""
        if self.type == CONSTANT:
            return f"== {shown(self.special)}"
        if self.is_one:
            return f"{self.type}, == 1"
        if isinstance(self.special, str) and self.special not in _TEXTS:
            return f"attributes {self.special}"
        text = _TEXTS.get(self.special, "") if not isinstance(self.special, dict) else ""
        if self.is_pointer:
            text = text.replace("divisible by 16", "aligned to 16")
        return f"{shown(self.type).strip(chr(39))}{f', {text}' if text else ''}"

    @property
    def hint(self) -> str:
        """The same in short, as Triton's own ahead-of-time compiler takes it: `i32:16`, `1`."""
        if self.type == CONSTANT:
            return shown(self.special)
        if self.is_one:
            return f"{self.type}:1"
        aligned = isinstance(self.special, str) and DIVISIBLE in self.special
        return f"{shown(self.type).strip(chr(39))}{':16' if aligned else ''}"

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"name": self.name, "type": self.type, "special": self.special}
        for name in ("value", "declared", "specialize", "align", "is_option"):
            if getattr(self, name) != getattr(_PLAIN, name):
                data[name] = getattr(self, name)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JitArgument:
        try:
            return cls(**{str(name): value for name, value in data.items()})
        except TypeError as error:
            raise RecordError(str(error)) from None


_PLAIN = JitArgument("", "", None)


@dataclass(frozen=True)
class Met:
    """When a specialization was first met, in which call, and whether while a config was measured.
    Nobody has met one that was only `derived` from others."""

    at: float = 0.0
    caller: str = ""
    tuning: bool = False
    seconds: float = 0.0
    derived: bool = False


@dataclass(frozen=True)
class Specialization:
    """`kernel` is `module:function`; `binary` is its key among packed kernels, or `why` there is
    none. `options` are in the order in which they were passed, which is part of Triton's key."""

    kernel: str
    arguments: tuple[JitArgument, ...]
    options: tuple[tuple[str, Any], ...]
    target: tuple[Any, ...]
    triton: str
    place: str = ""
    binary: str = ""
    why: str = ""
    met: Met = field(default_factory=Met)

    @cached_property
    def id(self) -> str:
        """Equal for what Triton itself would not tell apart."""
        parts = [
            self.kernel,
            [[one.name, one.type, one.special] for one in self.arguments],
            [list(pair) for pair in self.options],
            list(self.target),
        ]
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=6).hexdigest()

    @property
    def name(self) -> str:
        """Of the kernel's function alone."""
        return self.kernel.rpartition(":")[2].rpartition(".")[2]

    @property
    def opaque(self) -> str:
        """An argument or an option that cannot be made again, if there is one."""
        named = [(one.name, part) for one in self.arguments for part in (one.type, one.special)]
        return next((name for name, value in (*named, *self.options) if is_opaque(value)), "")

    def argument(self, name: str) -> JitArgument | None:
        return next((one for one in self.arguments if one.name == name), None)

    def changed(self, changes: Mapping[str, JitArgument]) -> Specialization:
        """Another of the same kernel, which nobody has met and nothing was compiled for yet."""
        arguments = tuple(changes.get(one.name, one) for one in self.arguments)
        return replace(self, arguments=arguments, binary="", why="", met=Met(derived=True))

    def to_json(self) -> dict[str, Any]:
        return {
            "v": 1,
            "kernel": self.kernel,
            "place": self.place,
            "arguments": [one.to_json() for one in self.arguments],
            "options": [list(pair) for pair in self.options],
            "target": list(self.target),
            "triton": self.triton,
            "binary": self.binary,
            "why": self.why,
            "met": vars(self.met),
        }

    @classmethod
    def from_json(cls, data: Any) -> Specialization:
        """Raises `RecordError` for what no whet has written."""
        try:
            if data["v"] != 1:
                raise RecordError(f"version {data['v']!r} is not known; update whet")
            found = cls(
                kernel=_text(data["kernel"]),
                place=_text(data["place"]),
                arguments=tuple(map(JitArgument.from_json, data["arguments"])),
                options=tuple((_text(name), value) for name, value in data["options"]),
                target=tuple(data["target"]),
                triton=_text(data["triton"]),
                binary=_text(data["binary"]),
                why=_text(data["why"]),
                met=Met(**data["met"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError(f"it describes no specialization ({error})") from None
        _check(found)
        return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise RecordError(f"{value!r} is not a text")
    return value


def _check(found: Specialization) -> None:
    backend, arch, warp = found.target if len(found.target) == 3 else (None, None, None)
    if not isinstance(backend, str) or not isinstance(arch, str | int) or type(warp) is not int:
        raise RecordError("its target is not a backend, an architecture and a warp size")
    for one in found.arguments:
        flags = all(type(flag) is bool for flag in (one.specialize, one.align, one.is_option))
        if not isinstance(one.name, str) or not isinstance(one.declared, str) or not flags:
            raise RecordError("an argument has a name, a type and flags")
        if one.value is not None and type(one.value) is not int:
            raise RecordError(f"the value of argument {one.name} is not an integer")


def arguments_of(
    params: list[Any],
    special: list[Any],
    values: Mapping[str, Any],
    options: Collection[str] = (),
) -> Iterator[JitArgument]:
    """Of a call, from Triton's own list of what is special about each argument; `options` are those
    that were set by keyword."""
    for param, pair in zip(params, special, strict=False):
        kind, property_ = pair[0], pair[1] if len(pair) > 1 else None
        declared = CONSTANT if param.is_constexpr else str(param.annotation_type or "")
        constant = kind == CONSTANT and not isinstance(kind, tuple)
        value = values.get(param.name)
        yield JitArgument(
            name=param.name,
            type=encoded(kind),
            special=encoded(values.get(param.name) if constant else property_),
            value=value if type(value) is int and declared != CONSTANT else None,
            declared=declared,
            specialize=not param.do_not_specialize,
            align=not param.do_not_specialize_on_alignment,
            is_option=param.name in options,
        )


def specialization_of(call: CompileCall, met: Met | None = None) -> Specialization:
    import triton

    target, code = call.target, call.jit.fn.__code__
    both = set(call.named) & set(call.options.__dict__)
    return Specialization(
        kernel=kernel_name(call.jit),
        place=f"{code.co_filename}:{code.co_firstlineno}",
        arguments=tuple(arguments_of(call.jit.params, list(call.special), call.values, both)),
        options=tuple((name, encoded(value)) for name, value in call.passed.items()),
        target=(target.backend, target.arch, target.warp_size),
        triton=triton.__version__,
        met=met or Met(),
    )


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
