"""`Event`: what the engine reports while it works.

Events are facts that have happened, in order. Whoever subscribes must be quick and must not raise;
the engine does not wait for a display.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.process import Holder
from whet.core.run import Result, Run
from whet.core.status import Status
from whet.core.trial import Trial


@dataclass(frozen=True)
class Waiting:
    """Another process tunes the same, and this one waits for it, `most_s` seconds at most. `run`
    has not started, and may never: the other one may find the answer."""

    run: Run
    holder: Holder
    most_s: float


@dataclass(frozen=True)
class Waited:
    """A wait that was announced is over; both are readings of `time.monotonic()`."""

    started: float
    ended: float


@dataclass(frozen=True)
class RunStarted:
    """`planned` is how many configs there are to try, None where that is open-ended; `known` is
    how many of the space had an outcome before."""

    run: Run
    planned: int | None
    known: int


@dataclass(frozen=True)
class BuildStarted:
    config: Config


@dataclass(frozen=True)
class BuildFinished:
    """`ok` is False for a refusal, an error or a cut; the trial that says why follows.

    `worker` is its place in the pool, counted from 0; `started` is a reading of
    `time.monotonic()`; `stages` are seconds, in the order in which the stages ran.
    """

    config: Config
    seconds: float
    ok: bool
    worker: int = 0
    started: float = 0.0
    stages: FrozenMap[float] = field(default_factory=FrozenMap)
    status: Status = Status.OK


@dataclass(frozen=True)
class MeasureStarted:
    config: Config


@dataclass(frozen=True)
class Measured:
    """One visit to the bench has ended: `kind` is "look", "sample" or "round".

    `started` and `ended` are readings of `time.monotonic()`; `seconds` are by phase: load, check,
    warmup, measure. A visit that failed has none.
    """

    kind: str
    configs: tuple[Config, ...]
    started: float
    ended: float
    seconds: FrozenMap[float]


@dataclass(frozen=True)
class TrialFinished:
    """A new trial, or a later outcome of one that was reported before. `known`: its config had an
    outcome before this run."""

    trial: Trial
    known: bool = False


@dataclass(frozen=True)
class BestChanged:
    trial: Trial


@dataclass(frozen=True)
class RaceAdvanced:
    """A round of the race is over: `left` configs may still win."""

    round: int
    left: int


@dataclass(frozen=True)
class DuelStarted:
    rivals: tuple[Config, ...]


@dataclass(frozen=True)
class DuelEnded:
    """`equals` is empty when `winner` beat everyone."""

    winner: Config
    equals: tuple[Config, ...]
    rounds: int


@dataclass(frozen=True)
class Noted:
    """Something a person should know, in one line, with its remedy where there is one."""

    text: str


@dataclass(frozen=True)
class RunFinished:
    result: Result


Event: TypeAlias = (
    Waiting
    | Waited
    | RunStarted
    | BuildStarted
    | BuildFinished
    | MeasureStarted
    | Measured
    | TrialFinished
    | BestChanged
    | RaceAdvanced
    | DuelStarted
    | DuelEnded
    | Noted
    | RunFinished
)
