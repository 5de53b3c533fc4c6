"""Everything here: one seat, whose objects live in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from whet.builds.shared import PoolSource
from whet.core.frozen import FrozenMap
from whet.engine.executors.protocol import Seat, SeatFacts, facts_here
from whet.workers.answers import Reply


class ObjectHere:
    """A `Session` without a process. Limits cannot be kept, and what crashes takes this process
    along."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self._factory = factory
        self._object: Any = None
        self._closed = False
        self.generation = 1
        self.made = 0
        self.set_up: FrozenMap[float] = FrozenMap()

    def prepare(self) -> None:
        if self.made < self.generation:
            self._object = self._factory()
            self.made = self.generation

    def discard(self) -> None:
        self.generation += 1
        self._object = None

    def call(
        self,
        method: str,
        *args: Any,
        limit_s: float | None = None,
        memory_bytes: int | None = None,
        parts_s: Mapping[str, float] | None = None,
    ) -> Reply:
        if self._closed:
            raise RuntimeError("the session is closed")
        self.prepare()
        start = time.perf_counter()
        value = getattr(self._object, method)(*args)
        return Reply(value, time.perf_counter() - start)

    def abort(self) -> None:
        """A call in this process cannot be ended."""

    def close(self, wait: bool = True) -> None:
        self._closed, self._object = True, None


class SeatHere:
    remote = False

    def __init__(self, name: str) -> None:
        self.name = name

    def facts(self) -> SeatFacts:
        return facts_here()

    def session(
        self, factory: Callable[[], Any], mode: str = "spawn", *, preload: Sequence[str] = ()
    ) -> ObjectHere:
        return ObjectHere(factory)


class ThisProcess:
    """What tuning is without any executor, in the form of one."""

    name = "this process"

    def __init__(self, device: str = "0") -> None:
        self._seat = SeatHere(device)

    def seats(self) -> Sequence[Seat]:
        return (self._seat,)

    def builders(self, mode: str, jobs: int | None = None) -> PoolSource | None:
        return None

    def build_slots(self, mode: str) -> int | None:
        return None

    def refused(self) -> Sequence[str]:
        return ()

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
