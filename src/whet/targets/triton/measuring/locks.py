"""One process at a time on one GPU."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.engine.turns.lock import file_lock
from whet.measure import Bench, FirstLook, Hopeless, Reading, Round
from whet.measure.bench.around import AroundBench
from whet.measure.bench.protocol import Built

__all__ = ["OneAtATime", "file_lock"]

_thread = threading.local()


class OneAtATime(AroundBench):
    """A bench that holds its GPU's lock while it measures: two processes that time on one device
    at once time each other. A hook that tunes another kernel meanwhile is in the same thread, and
    has the lock already."""

    def __init__(self, bench: Bench, path: Path, wait_s: float = 60.0) -> None:
        self._bench = bench
        self._path = path
        self._wait_s = wait_s

    def first(
        self,
        config: Config,
        artifact: Any,
        samples: int,
        *,
        limit_s: float | None = None,
        hopeless: Hopeless | None = None,
    ) -> FirstLook:
        with self._alone():
            return self._bench.first(config, artifact, samples, limit_s=limit_s, hopeless=hopeless)

    def looks(
        self,
        built: Sequence[Built],
        samples: int,
        *,
        limit_s: float | None = None,
        hopeless: Hopeless | None = None,
    ) -> list[FirstLook | ConfigFailure]:
        with self._alone():
            return self._bench.looks(built, samples, limit_s=limit_s, hopeless=hopeless)

    def sample(
        self, config: Config, artifact: Any, samples: int, *, limit_s: float | None = None
    ) -> tuple[Reading, FrozenMap[float]]:
        with self._alone():
            return self._bench.sample(config, artifact, samples, limit_s=limit_s)

    def round(self, built: Sequence[Built], *, limit_s: float | None = None) -> Round:
        with self._alone():
            return self._bench.round(built, limit_s=limit_s)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        held: set[Path] = _thread.__dict__.setdefault("held", set())
        if self._path in held:
            yield
            return
        with file_lock(self._path, self._wait_s):
            held.add(self._path)
            try:
                yield
            finally:
                held.discard(self._path)
