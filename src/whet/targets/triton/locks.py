"""Locks between processes. The system releases them when their holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.measure import Bench, FirstLook, Hopeless, Reading, Round
from whet.measure.bench import Built


@contextlib.contextmanager
def file_lock(path: Path, wait_s: float) -> Iterator[bool]:
    """Yields whether the lock was had within `wait_s` seconds.

    Where no file can be made (a read-only folder) there is nothing to agree on: it was had.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        yield True
        return
    try:
        yield _acquire(descriptor, wait_s)
    finally:
        # Closing alone would not do: a worker forked meanwhile has the descriptor too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _acquire(descriptor: int, wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    pause = 0.001
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(0.05, 2 * pause)
        else:
            return True


_thread = threading.local()


class OneAtATime:
    """A bench that holds its GPU's lock while it measures: two processes that time on one device
    at once time each other. A hook that tunes another kernel meanwhile is in the same thread, and
    has the lock already."""

    def __init__(self, bench: Bench, path: Path, wait_s: float = 60.0) -> None:
        self._bench = bench
        self._path = path
        self._wait_s = wait_s

    @property
    def in_process(self) -> bool:
        return self._bench.in_process

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

    def forget(self, config: Config) -> None:
        self._bench.forget(config)

    def close(self) -> None:
        self._bench.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

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
