"""A bench in this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.measure.bench.executor import CAPACITY, Executor
from whet.measure.bench.protocol import Built, FirstLook, Hopeless, Loader, Round
from whet.measure.gpu.room import DeviceRoom
from whet.measure.timer import Reading, Timer


class LocalBench:
    """For kernels that can be trusted, or cannot leave this process.

    An exception is the config's failure. A crash is the caller's, and a kernel that never returns
    is never stopped: `limit_s` cannot be kept here and is ignored. With a `room`, a timer that
    needs device memory takes it now.
    """

    in_process = True

    def __init__(
        self,
        loader: Loader,
        timer: Timer,
        check_each: bool = True,
        capacity: int = CAPACITY,
        room: DeviceRoom | None = None,
    ) -> None:
        self._station = Executor(loader, timer, check_each, capacity)
        prepare = getattr(timer, "prepare", None)
        if prepare is not None and room is not None:
            prepare(room)

    def first(
        self,
        config: Config,
        artifact: Any,
        samples: int,
        *,
        limit_s: float | None = None,
        hopeless: Hopeless | None = None,
    ) -> FirstLook:
        return self._station.first(config, artifact, samples, hopeless)

    def looks(
        self,
        built: Sequence[Built],
        samples: int,
        *,
        limit_s: float | None = None,
        hopeless: Hopeless | None = None,
    ) -> list[FirstLook | ConfigFailure]:
        taken = self._station.looks(built, samples, hopeless)
        _raise_if_spoilt(one for one in taken if isinstance(one, ConfigFailure))
        return taken

    def sample(
        self, config: Config, artifact: Any, samples: int, *, limit_s: float | None = None
    ) -> tuple[Reading, FrozenMap[float]]:
        return self._station.sample(config, artifact, samples)

    def round(self, built: Sequence[Built], *, limit_s: float | None = None) -> Round:
        turn = self._station.round(built)
        _raise_if_spoilt(turn.failures.values())
        return turn

    def forget(self, config: Config) -> None:
        self._station.forget(config.id)

    def close(self) -> None:
        self._station.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _raise_if_spoilt(failures: Iterable[ConfigFailure]) -> None:
    """Where this process can run nothing more, whoever came later fails for another's fault."""
    spoilt = [failure for failure in failures if failure.spoils]
    if spoilt:
        # What others were told quotes what happened, so the shortest is the one it happened to.
        raise min(spoilt, key=lambda failure: len(failure.message))
