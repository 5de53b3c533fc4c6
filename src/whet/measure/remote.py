"""A bench in a process of its own, so that no kernel can take the tuner down."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from whet.core.config import Config
from whet.core.errors import ConfigFailure, WhetError
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.trial import Limit
from whet.measure import failures
from whet.measure.bench import Built, FirstLook, Hopeless, Loader, Round
from whet.measure.station import CAPACITY, Station
from whet.measure.timer import Reading, Timer
from whet.workers.session import RemoteError, Session, WorkerDied, WorkerTimeout


@dataclass(frozen=True)
class _MakeStation:
    """Sent to the worker, or inherited by it, and called there."""

    make_loader: Callable[[], Loader]
    make_timer: Callable[[], Timer]
    check_each: bool
    capacity: int

    def __call__(self) -> Station:
        return Station(self.make_loader(), self.make_timer(), self.check_each, self.capacity)


class RemoteBench:
    """A kernel that crashes, hangs, exits or eats all memory fails alone.

    The worker is started anew after that, and loads again what is asked for. `make_loader` and
    `make_timer` run in the worker: with `mode="spawn"` they must be picklable, with "fork" not.
    `memory_bytes` is what one call may allocate on top of what the worker holds.
    """

    in_process = False
    _used = 0  # the session's generation in which the last call ran

    def __init__(
        self,
        make_loader: Callable[[], Loader],
        make_timer: Callable[[], Timer],
        mode: Literal["spawn", "fork"] = "spawn",
        memory_bytes: int | None = None,
        check_each: bool = True,
        capacity: int = CAPACITY,
    ) -> None:
        self._memory_bytes = memory_bytes
        self._session = Session(_MakeStation(make_loader, make_timer, check_each, capacity), mode)
        self._forgotten: list[str] = []

    def first(
        self,
        config: Config,
        artifact: Any,
        samples: int,
        *,
        limit_s: float | None = None,
        hopeless: Hopeless | None = None,
    ) -> FirstLook:
        look: FirstLook = self._call("first", config, artifact, samples, hopeless, limit_s=limit_s)
        return look

    def looks(
        self,
        built: Sequence[Built],
        samples: int,
        *,
        limit_s: float | None = None,
        hopeless: Hopeless | None = None,
    ) -> list[FirstLook | ConfigFailure]:
        taken: list[FirstLook | ConfigFailure]
        try:
            taken = self._call("looks", tuple(built), samples, hopeless, limit_s=limit_s)
        except ConfigFailure:
            # One of them ended the process that ran them all, or took all of the time.
            taken = []
            for config, artifact in built:
                try:
                    taken.append(
                        self.first(config, artifact, samples, limit_s=limit_s, hopeless=hopeless)
                    )
                except ConfigFailure as failure:
                    taken.append(failure)
            return taken
        return [self._limited(one) if isinstance(one, ConfigFailure) else one for one in taken]

    def sample(
        self, config: Config, artifact: Any, samples: int, *, limit_s: float | None = None
    ) -> tuple[Reading, FrozenMap[float]]:
        answer: tuple[Reading, FrozenMap[float]] = self._call(
            "sample", config, artifact, samples, limit_s=limit_s
        )
        return answer

    def round(self, built: Sequence[Built], *, limit_s: float | None = None) -> Round:
        whole = None if limit_s is None else limit_s * len(built)
        try:
            turn: Round = self._call("round", tuple(built), limit_s=whole)
        except ConfigFailure:
            return self._one_by_one(built, limit_s)
        limited = {id: self._limited(failure) for id, failure in turn.failures.items()}
        return replace(turn, failures=FrozenMap(limited))

    def forget(self, config: Config) -> None:
        self._forgotten.append(config.id)

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _one_by_one(self, built: Sequence[Built], limit_s: float | None) -> Round:
        """Finds out who ended the process that ran them all."""
        readings: dict[str, Reading] = {}
        failed: dict[str, ConfigFailure] = {}
        seconds: dict[str, float] = {}
        for config, artifact in built:
            try:
                readings[config.id], spent = self.sample(config, artifact, 1, limit_s=limit_s)
            except ConfigFailure as failure:
                failed[config.id] = failure
                continue
            for phase, of_phase in spent.items():
                seconds[phase] = seconds.get(phase, 0.0) + of_phase
        return Round(FrozenMap(readings), FrozenMap(failed), FrozenMap(seconds))

    def _call(self, method: str, *args: Any, limit_s: float | None) -> Any:
        forgotten, self._forgotten = tuple(self._forgotten), []
        try:
            return self._twice_if_in_doubt(forgotten, method, args, limit_s=limit_s)
        except ConfigFailure as failure:
            raise self._limited(failure) from failure
        except WorkerTimeout as late:
            raise failures.from_timeout(late.limit_s) from late
        except WorkerDied as death:
            raise failures.from_death(
                death.signal, death.exitcode, death.stderr_tail, self._memory_bytes
            ) from death
        except MemoryError as problem:
            raise self._limited(failures.from_exception(problem)) from problem
        except RemoteError as problem:
            raise _not_set_up(problem) from problem
        except WhetError:
            raise
        except Exception as problem:
            if isinstance(problem.__cause__, RemoteError):
                raise _not_set_up(problem) from problem
            raise

    def _twice_if_in_doubt(self, *request: Any, limit_s: float | None) -> Any:
        """A death is not blamed on the config at once where something else may be to blame: SIGKILL
        comes from outside, from a person or from a machine short of memory; and what has run in
        the same process before may have set an alarm or spoilt the heap. In a fresh process the
        second death is the config's own."""

        def ask() -> Any:
            memory = self._memory_bytes
            return self._session.call(
                "after_forgetting", *request, limit_s=limit_s, memory_bytes=memory
            ).value

        try:
            return ask()
        except WorkerDied as death:
            if death.signal != signal.SIGKILL and self._used != self._session.generation:
                raise
            return ask()
        finally:
            self._used = self._session.generation

    def _limited(self, failure: ConfigFailure) -> ConfigFailure:
        if failure.status is not Status.RESOURCES or failure.limit or self._memory_bytes is None:
            return failure
        limit = Limit("memory_bytes", self._memory_bytes)
        return ConfigFailure(failure.status, failure.message, limit)


def _not_set_up(problem: Exception) -> ConfigFailure:
    name = "" if isinstance(problem, RemoteError) else f"{type(problem).__name__}: "
    text = f"the measuring process could not be set up: {name}{problem}"
    return ConfigFailure(Status.RUN_ERROR, text)
