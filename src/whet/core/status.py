"""What became of a config, and the limit that a failure ran into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, get_args

from whet.core.decoding import number, one_of


class Status(StrEnum):
    """The outcome of a trial. A new value would be a change of the store schema."""

    OK = "ok"
    CONSTRAINT = "constraint"
    RESOURCES = "resources"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"
    RUN_TIMEOUT = "run_timeout"
    WRONG_RESULT = "wrong_result"
    OUTRACED = "outraced"

    def __init__(self, value: str) -> None:
        # There is a timing one may rely on.
        self.measured = value in ("ok", "outraced")
        self.failed = not self.measured


LimitKind = Literal["build_s", "run_s", "first_call_s", "memory_bytes"]
_LIMIT_KINDS: tuple[str, ...] = get_args(LimitKind)


@dataclass(frozen=True)
class Limit:
    """The limit a failure ran into. Under a higher one the config deserves another try.

    `configured` is the limit that was set, where whet derived a shorter one from what other configs
    needed: only raising what was set is a reason to try again.
    """

    kind: LimitKind
    value: float
    configured: float | None = None

    @property
    def ceiling(self) -> float:
        """What has to rise for another try."""
        return self.value if self.configured is None else self.configured

    def to_json(self) -> dict[str, Any]:
        derived = {} if self.configured is None else {"configured": self.configured}
        return {"kind": self.kind, "value": self.value, **derived}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Limit:
        derived = data.get("configured") is not None
        return cls(
            one_of(data, "kind", _LIMIT_KINDS),
            number(data, "value"),
            number(data, "configured") if derived else None,
        )
