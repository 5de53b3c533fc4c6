"""`Coverage`: how much of a space was tried, why no more was, and what would go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from whet.core.budget import Budget
from whet.core.errors import option


class Stop(StrEnum):
    """Why a tuning asked for no more configs. A closed set."""

    COMPLETE = "complete"
    TIME = "time"
    TRIALS = "trials"
    SEARCH = "search"
    EFFORT = "effort"
    BUILDS = "builds"
    INTERRUPTED = "interrupted"
    HOST = "host"
    DEVICE = "device"
    STORE = "store"
    ERROR = "error"
    UNFINISHED = "unfinished"

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Stop | None:
        """Of a run as JSON. An older whet did not write it down, but what it must have been
        follows from the rest in most cases; a newer one may know more reasons."""
        if "stopped" in data:
            return cls(data["stopped"]) if data["stopped"] in list(cls) else None
        if data["outcome"] == "interrupted":
            return cls.INTERRUPTED
        if data["outcome"] != "finished":
            return None
        if data["exhaustive"] is True:
            return cls.COMPLETE
        budget = Budget.from_json(data["budget"])
        if budget.trials is not None and data["trials"] >= budget.trials:
            return cls.TRIALS
        return None if budget.seconds is None else cls.TIME


_AGAIN = "tune again to continue"
_CONFIRM = "tune again to confirm it"
_REASONS = {
    Stop.SEARCH: "the search proposed no more configs",
    Stop.EFFORT: "effort is quick, and the rest was not expected to pay",
    Stop.BUILDS: "stalled builds were abandoned",
    Stop.INTERRUPTED: "it was interrupted",
    Stop.HOST: "the machine ran out of a resource that every config needs",
    Stop.DEVICE: "a config crashed the device context",
    Stop.STORE: "the store could no longer be written",
    Stop.ERROR: "an error stopped it",
    Stop.UNFINISHED: "it is still running, or was killed",
}
_OPTIONS = {Stop.SEARCH: ("search", "grid"), Stop.EFFORT: ("effort", "full")}


@dataclass(frozen=True)
class Coverage:
    """`tried` counts configs of the space with a known outcome, those of earlier runs included;
    `size` is None where the space is too large to count. `provisional`: the budget ended before
    the pick was confirmed."""

    tried: int
    size: int | None
    stopped: Stop | None
    budget: Budget
    provisional: bool = False

    @property
    def complete(self) -> bool:
        return self.stopped is Stop.COMPLETE

    @property
    def count_text(self) -> str:
        """`62 of 132 configs`."""
        if self.size is None:
            return f"{self.tried:,} of a very large number of configs"
        return f"{self.tried:,} of {self.size:,} config{'' if self.size == 1 else 's'}"

    @property
    def reason(self) -> str:
        """`budget of 50 trials used up`; empty where all were tried or it is not known."""
        if self.stopped is Stop.TIME:
            return f"budget of {Budget(seconds=self.budget.seconds).text} used up"
        if self.stopped is Stop.TRIALS:
            return f"budget of {Budget(trials=self.budget.trials).text} used up"
        return "" if self.stopped is None else _REASONS.get(self.stopped, "")

    @property
    def next_budget(self) -> Budget | None:
        """The budget under which a further tuning goes on, where it was the budget that ended this
        one: twice as much, or what is left."""
        trials = self.budget.trials
        if self.stopped is Stop.TIME and self.budget.seconds is not None:
            return replace(self.budget, seconds=2 * self.budget.seconds)
        if self.stopped is Stop.TRIALS and trials is not None:
            left = 2 * trials if self.size is None else self.size - self.tried
            # The same budget once more would be answered from the store.
            return replace(self.budget, trials=max(trials + 1, min(2 * trials, left)))
        return None

    @property
    def next_option(self) -> str:
        """What to add on the command line to go on: `--budget 100trials`; empty where nothing has
        to be added or nothing is left."""
        return "" if self._further is None else "--{} {}".format(*self._further)

    @property
    def next_text(self) -> str:
        """`continue with --budget 100trials`, or `continue with budget="100trials"` in a Python
        program; empty where nothing is left to do."""
        if self.complete or self.stopped is None:
            return _CONFIRM if self.provisional else ""
        return _AGAIN if self._further is None else f"continue with {option(*self._further)}"

    @property
    def _further(self) -> tuple[str, str] | None:
        if self.next_budget is not None:
            return "budget", str(self.next_budget)
        return None if self.stopped is None else _OPTIONS.get(self.stopped)

    @property
    def lines(self) -> list[str]:
        """How far and why, then what goes on, which is there to be copied and stays whole."""
        why = f": {self.reason}" if self.reason else ""
        pick = ["the pick is provisional: the budget ended before it was confirmed"]
        return [
            f"{self.count_text} tried{why}",
            *(pick if self.provisional else []),
            *([self.next_text] if self.next_text else []),
        ]

    def __str__(self) -> str:
        """`62 of 132 configs tried: budget of 50 trials used up; continue with …`."""
        return "; ".join(self.lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "tried": self.tried,
            "size": self.size,
            "stopped": None if self.stopped is None else str(self.stopped),
            "reason": self.reason,
            "next": self.next_option,
            "provisional": self.provisional,
        }
