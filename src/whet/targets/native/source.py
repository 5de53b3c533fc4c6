"""The fingerprint of a C kernel: its text and headers, and how it is compiled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.core.frozen import FrozenMap
from whet.core.workload import Origin
from whet.targets.fingerprint import Source, digest, of_c_source, same_value, shown

_NUMBER = r"[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[uUlLfF]*"
_DEFINE = re.compile(rf"^([ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+)({_NUMBER})[ \t]*$", re.MULTILINE)
_OPTION = re.compile(r"-D(\w+)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class NativeSource:
    """`#define M 512` in the text and `-DM=512` among the options are values from outside where a
    Python function made them; the key may claim them as it may claim what a function captures."""

    text: str
    folder: Path | None
    include: tuple[str, ...]
    function: str
    options: tuple[str, ...]
    libraries: tuple[str, ...]

    def source(self, claims: Mapping[str, Any]) -> Source:
        captured: dict[str, str] = {}

        def is_claimed(name: str, value: Any) -> bool:
            if name in claims and same_value(value, claims[name]):
                return True
            captured[name] = shown(value)
            return False

        def left(found: re.Match[str]) -> str:
            return found[1] if is_claimed(found[2], _read(found[3])) else found[0]

        text = _DEFINE.sub(left, self.text)
        options = [one for one in self.options if not _is(one, is_claimed)]
        code = _DEFINE.sub(lambda found: found[1], self.text)
        bare = [one for one in self.options if _OPTION.fullmatch(one) is None]
        origin = Origin(self._digest(code, bare), FrozenMap(captured))
        return Source(self._digest(text, options), origin)

    def _digest(self, text: str, options: Sequence[str]) -> str:
        whole = of_c_source(text, self.folder, self.include)
        return digest(whole, self.function, *options, *self.libraries)


def _is(option: str, is_claimed: Any) -> bool:
    found = _OPTION.fullmatch(option)
    return found is not None and bool(is_claimed(found[1], _read(found[2])))


def _read(literal: str) -> Any:
    """`0x40u` is 64, `1.5f` is 1.5; anything else is text, and so is an octal number."""
    if re.fullmatch(_NUMBER, literal) is None or re.match(r"[-+]?0\d", literal):
        return literal
    bare = literal.rstrip("uUlL")
    try:
        return int(bare, 0)
    except ValueError:
        return float(bare.rstrip("fF"))
