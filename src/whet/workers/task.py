"""What goes into a pool and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from whet.core.frozen import FrozenMap


class Kind(StrEnum):
    """How a task ended."""

    DONE = "done"
    RAISED = "raised"
    TIMED_OUT = "timed_out"
    DIED = "died"
    NOT_STARTED = "not_started"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Task:
    """`call(*args)`, to be run in a worker whose working folder is empty and its own.

    `memory_bytes` is what the task may allocate on top of what its worker holds already.
    `label` names the task in messages. Tasks of equal `identity` come to the same end.
    `first(*args)`, where there is one, does the part that only a fork of this process can do: it
    returns the `Rest`, or `Stayed` where no other machine could do that.
    """

    call: Callable[..., Any]
    args: tuple[Any, ...] = ()
    limit_s: float | None = None
    memory_bytes: int | None = None
    label: str = ""
    identity: str | None = None
    first: Callable[..., Rest | Stayed] | None = None

    @property
    def name(self) -> str:
        return self.label or getattr(self.call, "__qualname__", repr(self.call))


@dataclass(frozen=True)
class Rest:
    """What is left of a task, for any machine with the same software: `call(*args)`. `finish`,
    called here with what that returned, returns what the whole task would have."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    finish: Callable[[Any], Any]


@dataclass(frozen=True)
class Stayed:
    """What the whole task returned; `why` it could not be divided, if that is worth saying."""

    value: Any
    why: str = ""


class UnfitMachine(Exception):
    """A task refuses the machine that it is run on: `reason` says what differs there. Another
    machine may do."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class TaskOutcome:
    """How one task went. Delivered once, after its processes are gone.

    `error` is a text for people and ends with what the task last printed. `exception` is what
    the task raised, where that can be sent. `seconds` is the worker's time; `started` and
    `ended` are readings of `time.monotonic()`. `worker` is the place it had among those that run
    at once, counted from 0. `limit_s` is the limit that ended it, where one did.
    """

    ticket: int
    kind: Kind
    value: Any = None
    error: str = ""
    exception: BaseException | None = None
    signal: int | None = None
    seconds: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    stages: FrozenMap[float] = field(default_factory=FrozenMap)
    worker: int = 0
    limit_s: float | None = None
