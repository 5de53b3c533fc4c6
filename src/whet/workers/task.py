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
    """

    call: Callable[..., Any]
    args: tuple[Any, ...] = ()
    limit_s: float | None = None
    memory_bytes: int | None = None
    label: str = ""
    identity: str | None = None

    @property
    def name(self) -> str:
        return self.label or getattr(self.call, "__qualname__", repr(self.call))


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
