"""A bench in this process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Self

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.measure.bench.executor import CAPACITY, Executor
from whet.measure.bench.protocol import Answer, Loader, Visit
from whet.measure.gpu.room import DeviceRoom
from whet.measure.timer import FlushingTimer, Timer


class LocalBench:
    """For kernels that can be trusted, or cannot leave this process.

    An exception is the config's failure. A crash is the caller's, and a kernel that never returns
    is never stopped: `limit_s` cannot be kept here and is ignored. With a `room`, a timer that
    needs device memory takes it now. `alone` is entered for each visit.
    """

    in_process = True

    def __init__(
        self,
        loader: Loader,
        timer: Timer,
        check_each: bool = True,
        capacity: int = CAPACITY,
        room: DeviceRoom | None = None,
        alone: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._executor = Executor(loader, timer, check_each, capacity)
        self._alone = alone
        if room is not None and isinstance(timer, FlushingTimer):
            timer.prepare(room)

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        with self._alone():
            answers = self._executor.measure(visit)
        spoilt = [one for one in answers if isinstance(one, ConfigFailure) and one.spoils]
        if spoilt:
            # What others were told quotes what happened, so the shortest is the one it happened to.
            raise min(spoilt, key=lambda failure: len(failure.message))
        return answers

    def forget(self, config: Config) -> None:
        self._executor.forget(config.id)

    def end_call(self) -> None:
        pass

    def close(self) -> None:
        self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
