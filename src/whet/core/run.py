"""`Run`, `Result` and `Choice`: one tuning, what it found, what may be used without it; `Coverage`:
how much of a space was tried, why no more was, and what would go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.decoding import number, text, whole
from whet.core.errors import option
from whet.core.shown import drawn, told
from whet.core.trial import Cost, Trial, new_id
from whet.core.workload import Workload


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
_ASK = "ask for more with 'whet ask'"
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
    the pick was confirmed; `told`, that another program measured and told whet."""

    tried: int
    size: int | None
    stopped: Stop | None
    budget: Budget
    provisional: bool = False
    told: bool = False

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
        if self.told:
            return _ASK
        return _AGAIN if self._further is None else f"continue with {option(*self._further)}"

    @property
    def _further(self) -> tuple[str, str] | None:
        if self.told:
            return None
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


class Outcome(StrEnum):
    """`running` is also what a run that was killed says: nobody lived to write more."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True)
class Run:
    """One tuning. `exhaustive` means every valid config of the space has its trial; `first` is the
    author's own config, the one that would be used without tuning. `tried` counts the configs of
    the space that had an outcome in the end, by this run or an earlier one; `stopped` says why
    there are no more. Both are None while it runs, and may be where an older whet wrote it.
    `paired_speedup` is how many times faster `best` is than `first`, measured side by side; None
    where they were not, and in runs of 0.1. `provisional` says that the budget ended before `best`
    was confirmed against the others. `writer` is who ran it, as `user@host`; empty where nobody
    wrote that down, and in bundles, which strangers may read.

    `taken` and `after` say how it came into the store it was read from: by a merge, and knowing
    which runs of other stores. They are no part of what it is, so two runs that differ in nothing
    else are equal."""

    workload: Workload
    space_id: str
    space_size: int | None
    search: str
    seed: int
    budget: Budget = field(default_factory=Budget)
    outcome: Outcome = Outcome.RUNNING
    exhaustive: bool = False
    first: Config | None = None
    best: Config | None = None
    equals: tuple[Config, ...] = ()
    trials: int = 0
    tried: int | None = None
    stopped: Stop | None = None
    paired_speedup: float | None = None
    provisional: bool = False
    cost: Cost = field(default_factory=Cost)
    started: float = 0.0
    wall_s: float = 0.0
    whet: str = ""
    id: str = field(default_factory=new_id)
    writer: str = field(default="", compare=False)
    after: tuple[str, ...] = field(default=(), compare=False)
    taken: bool = field(default=False, compare=False)

    def __repr__(self) -> str:
        best = "" if self.best is None else f", best [{self.best}]"
        return f"Run({self.workload}: {self.outcome}{best}, {self.trials} trials)"

    @property
    def host(self) -> str:
        return self.writer.rpartition("@")[2]

    @property
    def chose(self) -> bool:
        """Whether it ended with a choice of its own."""
        return self.outcome is Outcome.FINISHED and self.best is not None

    @property
    def ended(self) -> float:
        """Seconds since the epoch; where it still runs, when it was last heard of."""
        return self.started + self.wall_s

    @property
    def coverage(self) -> Coverage | None:
        """How much of the space was tried; None where that was not written down."""
        return None if self.tried is None else self.covering(self.tried)

    def covering(self, tried: int) -> Coverage:
        """The coverage where so many configs of its space have an outcome."""
        size, stopped = self.space_size, self.stopped
        if self.outcome is Outcome.RUNNING:
            stopped = Stop.UNFINISHED
        if size is not None and tried >= size:
            tried, stopped = size, Stop.COMPLETE
        told = not self.workload.fingerprint
        return Coverage(tried, size, stopped, self.budget, self.provisional, told)

    def to_json(self) -> dict[str, Any]:
        return {
            "v": 1,
            "id": self.id,
            "workload": self.workload.to_json(),
            "space": {"id": self.space_id, "size": self.space_size},
            "search": self.search,
            "seed": self.seed,
            "budget": self.budget.to_json(),
            "outcome": str(self.outcome),
            "exhaustive": self.exhaustive,
            "first": None if self.first is None else dict(self.first),
            "best": None if self.best is None else dict(self.best),
            "equals": [dict(config) for config in self.equals],
            "trials": self.trials,
            "tried": self.tried,
            "stopped": None if self.stopped is None else str(self.stopped),
            "paired_speedup": self.paired_speedup,
            "provisional": self.provisional,
            "cost": self.cost.to_json(),
            "started": self.started,
            "wall_s": self.wall_s,
            "whet": self.whet,
            "writer": self.writer,
            "after": list(self.after),
            "taken": self.taken,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Run:
        """Runs of 0.1 say nothing of `after` and `taken`: they knew no other store's runs."""
        best, first, size = data["best"], data.get("first"), data["space"]["size"]
        if type(data["exhaustive"]) is not bool:
            raise ValueError("'exhaustive' is neither true nor false")
        return cls(
            workload=Workload.from_json(data["workload"]),
            space_id=text(data["space"], "id"),
            space_size=None if size is None else whole(data["space"], "size"),
            search=text(data, "search"),
            seed=whole(data, "seed"),
            budget=Budget.from_json(data["budget"]),
            outcome=Outcome(data["outcome"]),
            exhaustive=data["exhaustive"],
            first=None if first is None else Config(first),
            best=None if best is None else Config(best),
            equals=tuple(Config(config) for config in data["equals"]),
            trials=whole(data, "trials"),
            tried=None if data.get("tried") is None else whole(data, "tried"),
            stopped=Stop.read(data),
            paired_speedup=_speedup(data),
            provisional=data.get("provisional") is True,
            cost=Cost.from_json(data["cost"]),
            started=number(data, "started"),
            wall_s=number(data, "wall_s"),
            whet=text(data, "whet"),
            id=text(data, "id"),
            writer=text(data, "writer") if "writer" in data else "",
            after=_ids(data.get("after", [])),
            taken=data.get("taken") is True,
        )


def chosen_by(runs: Sequence[Run], best: Config) -> Run | None:
    """The run whose choice a workload's best config is; None where it is merely the fastest that is
    known, since no run has finished. `runs` are the workload's, the newest first."""
    chose = [run for run in runs if run.chose]
    if not any(run.taken for run in chose):
        chose = chose[:1]  # of one store's runs the newest counts
    return next((run for run in chose if run.best == best), None)


def speedup_over(first: Trial | None, best: Trial, run: Run | None) -> float | None:
    """How many times faster the best is than the author's first config: as `run`, which chose it,
    measured them side by side, otherwise the ratio of their medians."""
    if run is not None and run.paired_speedup is not None:
        return run.paired_speedup
    if first is None or first.median_ns is None or not best.median_ns:
        return None
    return first.median_ns / best.median_ns


def _speedup(data: Mapping[str, Any]) -> float | None:
    if data.get("paired_speedup") is None:
        return None
    found = number(data, "paired_speedup")
    if found <= 0:
        raise ValueError("'paired_speedup' is not above 0")
    return found


def _ids(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(type(value) is str for value in values):
        raise ValueError("'after' is not a list of ids")
    return tuple(values)


@dataclass(frozen=True)
class Result:
    """The result of tuning.

    `source` is `tuned`, `stored` if nothing had to be built or measured, or `waited` if another
    process was still tuning the same workload when this one stopped waiting; then `best` is the
    best known so far, or a config that was never measured, as the notes say. `equals` are configs
    that the final duel could not distinguish from the best. `trials` has one trial per config tried
    in this run; `known` counts configs that were already in the store and not tried again. `first`
    is the author's first config, if it could be measured.
    """

    run: Run
    best: Trial
    first: Trial | None
    trials: tuple[Trial, ...]
    known: int = 0
    source: Literal["tuned", "stored", "waited"] = "tuned"
    equals: tuple[Config, ...] = ()
    notes: tuple[str, ...] = ()

    _repr_html_ = drawn
    __str__ = told

    def __repr__(self) -> str:
        times = (
            "" if self.speedup is None else f", {self.speedup:.3g} times the first config's speed"
        )
        return f"Result({self.source}: {self.best!r}{times}, {len(self.trials)} trials)"

    @property
    def config(self) -> Config:
        return self.best.config

    @property
    def interrupted(self) -> bool:
        return self.run.outcome is Outcome.INTERRUPTED

    @property
    def speedup(self) -> float | None:
        """How many times faster the best is than the author's first config.

        Measured side by side if a tuning run had both in its duel, otherwise the ratio of their
        medians.
        """
        return speedup_over(self.first, self.best, self.run)

    @property
    def paired_speedup(self) -> float | None:
        return self.run.paired_speedup

    @property
    def statuses(self) -> dict[str, int]:
        return dict(Counter(str(trial.status) for trial in self.trials))

    def to_json(self) -> dict[str, Any]:
        def brief(trial: Trial | None) -> dict[str, Any] | None:
            if trial is None:
                return None
            timing = trial.timing
            return {
                "config": dict(trial.config),
                "config_id": trial.config.id,
                "status": str(trial.status),
                "median_ns": trial.median_ns,
                "interval_ns": None if timing is None else timing.interval_ns,
                "samples": 0 if timing is None else len(timing.samples),
                "error": trial.error,
            }

        return {
            "v": 1,
            "workload": self.run.workload.to_json(),
            "run": self.run.id,
            "outcome": str(self.run.outcome),
            "source": self.source,
            "space": {"id": self.run.space_id, "size": self.run.space_size},
            "search": self.run.search,
            "seed": self.run.seed,
            "budget": self.run.budget.to_json(),
            "best": brief(self.best),
            "first": brief(self.first),
            "speedup": self.speedup,
            "provisional": self.run.provisional,
            "equals": [dict(config) for config in self.equals],
            "coverage": None if self.run.coverage is None else self.run.coverage.to_json(),
            "trials": len(self.trials),
            "known": self.known,
            "statuses": self.statuses,
            "cost": dict(self.run.cost.wall),
            "work": dict(self.run.cost.work),
            "wall_s": self.run.wall_s,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Choice:
    """A config to use now, where it comes from, and a confidence from 0 to 1."""

    config: Config
    source: Literal["exact", "model", "nearest", "portfolio", "first"]
    confidence: float
    reason: str = ""
