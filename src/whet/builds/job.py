"""What a target hands over to be built, and what a build gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from whet.core.config import Config, Value
from whet.core.frozen import FrozenMap
from whet.core.status import Limit, Status


@dataclass(frozen=True)
class Built:
    """A finished artifact, in a form that can be sent (the bytes of a library, for instance)."""

    artifact: Any
    facts: FrozenMap[Value] = field(default_factory=FrozenMap)


@dataclass(frozen=True)
class Job:
    """`call(*args)` runs in a worker, in an empty folder of its own, and returns a `Built`.

    It may raise `ConfigFailure` to say which status the config deserves. Jobs of equal `identity`
    build the very same binary, or fail in the same way: one is built for all, and its artifact is
    kept for the life of the process, so it should be small. None where that cannot be told.
    `first` is the part of it that needs this process, as in `Task`; None where it has no parts.
    """

    call: Callable[..., Built]
    args: tuple[Any, ...] = ()
    identity: str | None = None
    first: Callable[..., Any] | None = None


@dataclass(frozen=True)
class BuildResult:
    """One config's build. `started` and `ended` are readings of `time.monotonic()`, `worker` is its
    place in the pool. One that is `remembered` took no worker: another build gave its result."""

    config: Config
    status: Status
    artifact: Any = None
    facts: FrozenMap[Value] = field(default_factory=FrozenMap)
    stages: FrozenMap[float] = field(default_factory=FrozenMap)
    seconds: float = 0.0
    error: str = ""
    limit: Limit | None = None
    started: float = 0.0
    ended: float = 0.0
    worker: int = 0
    remembered: bool = False
