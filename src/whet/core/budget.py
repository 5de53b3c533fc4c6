"""`Budget`: how much a tuning may cost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from whet.core.decoding import number, whole
from whet.core.errors import BudgetError

_UNITS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_MOST = 1e12
_SECONDS_OR_TEXT = "give seconds above 0, or a text such as '30s', '5m' or '200trials'"
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")


@dataclass(frozen=True)
class Budget:
    """A limit on seconds, trials, or both (whichever is reached first); by default none."""

    seconds: float | None = None
    trials: int | None = None

    @classmethod
    def parse(cls, text: str | float | Budget | None) -> Budget:
        """Parses `"30s"`, `"5m"`, `"200trials"` or `"1h,500trials"`; a number is seconds, `"none"`
        and None mean no limit.
        """
        if isinstance(text, Budget):
            return text
        if isinstance(text, Real) and not isinstance(text, bool):
            if not 0 < text < _MOST:
                raise BudgetError(f"budget {text} is not valid; {_SECONDS_OR_TEXT}")
            return cls(float(text))
        if not isinstance(text, str | None):
            raise BudgetError(
                f"budget {text!r} is of type {type(text).__name__}; {_SECONDS_OR_TEXT}"
            )
        if text is None or text.strip().lower() in ("", "none"):
            return cls()
        seconds: float | None = None
        trials: int | None = None
        for part in text.lower().split(","):
            match = _PART.fullmatch(part.strip())
            unit = match[2] if match else ""
            amount = float(match[1]) if match else 0.0
            if not amount < _MOST:
                unit = ""
            if unit in _UNITS and amount > 0 and seconds is None:
                seconds = amount * _UNITS[unit]
            elif unit in ("trial", "trials") and amount >= 1 and amount.is_integer() and not trials:
                trials = int(amount)
            else:
                raise BudgetError(
                    f"budget '{text}' is not valid; use a time or a count, such as 30s, 5m, "
                    "200trials or 1h,500trials"
                )
        return cls(seconds, trials)

    @property
    def bounded(self) -> bool:
        return self.seconds is not None or self.trials is not None

    def covers(self, other: Budget) -> bool:
        """Whether a run with this budget is enough for someone who asks for `other`."""

        def enough(mine: float | None, asked: float | None) -> bool:
            return mine is None or (asked is not None and asked <= mine)

        return enough(self.seconds, other.seconds) and enough(self.trials, other.trials)

    def __str__(self) -> str:
        parts = []
        if self.seconds is not None:
            parts.append(_duration(self.seconds, "s", "m", "h"))
        if self.trials is not None:
            parts.append(f"{self.trials}trials")
        return ",".join(parts) or "none"

    @property
    def text(self) -> str:
        """As prose: `200 trials`, `30 s or 200 trials`. `str(budget)` is the form that `parse`
        accepts.
        """
        parts = []
        if self.seconds is not None:
            parts.append(_duration(self.seconds, " s", " min", " h"))
        if self.trials is not None:
            parts.append(f"{self.trials:,} trial{'' if self.trials == 1 else 's'}")
        return " or ".join(parts) or "none"

    def to_json(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "trials": self.trials}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Budget:
        seconds, trials = data["seconds"], data["trials"]
        return cls(
            None if seconds is None else number(data, "seconds"),
            None if trials is None else whole(data, "trials"),
        )


def _duration(seconds: float, *units: str) -> str:
    """In the largest unit of which there is a whole number: `90s`, `5m`."""
    sizes = (3600.0, 60.0, 1.0)
    for size, unit in zip(sizes, reversed(units), strict=True):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}{units[0]}"
