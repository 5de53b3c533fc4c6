"""One binary that Triton makes of a kernel: for which arguments, constants and options."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from whet.core.lazy import cached_property
from whet.targets.triton.jit.constants import encoded, is_opaque, shown

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
