"""`Limit`: what a failure ran into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from whet.core.decoding import number, one_of

LimitKind = Literal["build_s", "run_s", "memory_bytes"]
_LIMIT_KINDS: tuple[str, ...] = get_args(LimitKind)


@dataclass(frozen=True)
class Limit:
    """The limit a failure ran into. Under a higher one the config deserves another try."""

    kind: LimitKind
    value: float

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "value": self.value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Limit:
        return cls(one_of(data, "kind", _LIMIT_KINDS), number(data, "value"))
