"""A bench in a process of its own, so that no kernel can take the tuner down."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Sequence
from typing import Literal

from whet.core.config import Config
from whet.core.errors import ConfigFailure, WhetError
from whet.core.frozen import FrozenMap
from whet.core.status import Limit, Status
from whet.measure.bench.executor import CAPACITY, FIRST_CALL, RUNNING, MakeExecutor
from whet.measure.bench.protocol import (
    Answer,
    Bench,
    Loader,
    Sampled,
    Visit,
    from_death,
    from_exception,
    from_first_call_timeout,
    from_timeout,
)
from whet.measure.timer import Timer, joined
from whet.workers.answers import RemoteError, WorkerDied, WorkerTimeout
from whet.workers.session import OpenSession, Session

# What the first call of a process may take beyond its limit: a device has to wake up, and libraries
# load what they did not need before.
FIRST_CALL_S = 3.0

# How often a worker that is killed before it is ready is started again.
SET_UPS = 3


class NotSetUp(ConfigFailure):
    """No config's fault: the measuring process could not be made ready. `kind` is the name of
    what was raised there, empty where the process ended or took too long."""

    def __init__(self, status: Status, message: str, kind: str = "") -> None:
        super().__init__(status, message)
        self.kind = kind


class RemoteBench(Bench):
    """A kernel that crashes, hangs, exits, eats all memory or spoils its process fails alone.

    The worker is started anew after that, and loads again what is asked for. `make_loader` and
    `make_timer` run in the worker: with `mode="spawn"` they must be picklable, with "fork" not.
    `memory_bytes` is what one call may allocate on top of what the worker holds. `preload` names
    modules that take long to import; where there are any, a worker is made ready before it is
    needed, and its first call may take a little longer than others. `first_call_s` is asked how
    long the first call of a config may take, where its target has such a phase. `open_session`
    starts the process somewhere else than here, such as for another device.
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
        preload: Sequence[str] = (),
        first_call_s: Callable[[], float] | None = None,
        open_session: OpenSession | None = None,
    ) -> None:
        self._memory_bytes = memory_bytes
        self._first_call_s = first_call_s
        make = MakeExecutor(make_loader, make_timer, check_each, capacity)
        self._session = (open_session or Session)(make, mode, preload=preload)
        self._ahead = bool(preload)
        self._forgotten: list[str] = []
        if self._ahead:
            self._session.prepare()

    @property
    def set_up(self) -> FrozenMap[float]:
        """Where the time went in which the last worker was made ready, by stage, in seconds."""
        return self._session.set_up

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        try:
            answers = self._call(visit)
        except ConfigFailure as failure:
            self._pass_on(failure)
            if len(visit.built) == 1:
                return (failure,)
            # One of them ended the process that ran them all, or took all of the time.
            return self._one_by_one(visit)
        if any(isinstance(one, ConfigFailure) and one.spoils for one in answers):
            self._replace()
            if len(visit.built) > 1:
                return self._one_by_one(visit)
        return tuple(
            self._limited(one) if isinstance(one, ConfigFailure) else one for one in answers
        )

    def forget(self, config: Config) -> None:
        self._forgotten.append(config.id)

    def end_call(self) -> None:
        """Ends the call under way, from another thread: its config has crashed."""
        self._session.abort()

    def close(self, wait: bool = True) -> None:
        """Without `wait`, what the worker holds may be held a moment longer."""
        self._session.close(wait)

    def _one_by_one(self, visit: Visit) -> tuple[Answer, ...]:
        """Finds out who ended the process that ran them all."""
        answers: dict[str, Answer] = {}
        for config, artifact in visit.built:
            before = answers.get(config.id)
            if isinstance(before, ConfigFailure):
                continue
            [one] = self.measure(visit.of((config, artifact)))
            if isinstance(before, Sampled) and isinstance(one, Sampled):
                one = _joined(before, one)
            answers[config.id] = one
        return tuple(answers.values())

    def _pass_on(self, failure: ConfigFailure) -> None:
        """Who has a worker made ready beforehand knows what to do when that cannot be; for others
        it is one more way to fail."""
        if self._ahead and isinstance(failure, NotSetUp):
            raise failure

    def _replace(self) -> None:
        """Ends the worker; where it takes long to make one ready, the next begins at once."""
        self._session.discard()
        if self._ahead:
            self._session.prepare()

    def _call(self, visit: Visit) -> tuple[Answer, ...]:
        try:
            return self._asked(visit)
        except ConfigFailure as failure:
            if failure.spoils:
                self._replace()
            elif self._ahead and not isinstance(failure, NotSetUp):
                self._session.prepare()
            raise

    def _asked(self, visit: Visit) -> tuple[Answer, ...]:
        forgotten, self._forgotten = tuple(self._forgotten), []
        session = self._session
        try:
            return self._twice_if_in_doubt(visit, forgotten)
        except ConfigFailure as failure:
            raise self._limited(failure) from failure
        except (WorkerTimeout, WorkerDied) as ended:
            if session.made < session.generation:
                raise _not_set_up(ended) from ended
            if isinstance(ended, WorkerTimeout):
                timed_out = from_timeout
                if ended.milestone == FIRST_CALL:
                    timed_out = from_first_call_timeout
                raise timed_out(ended.limit_s) from ended
            raise from_death(
                ended.signal, ended.exitcode, ended.stderr_tail, self._memory_bytes
            ) from ended
        except MemoryError as problem:
            raise self._limited(from_exception(problem)) from problem
        except RemoteError as problem:
            raise _not_set_up(problem) from problem
        except WhetError:
            raise
        except Exception as problem:
            if isinstance(problem.__cause__, RemoteError):
                raise _not_set_up(problem) from problem
            raise

    def _twice_if_in_doubt(self, visit: Visit, forgotten: Sequence[str]) -> tuple[Answer, ...]:
        """A death is not blamed on the config at once where something else may be to blame: SIGKILL
        comes from outside, from a person or from a machine short of memory; and what has run in
        the same process before may have set an alarm or spoilt the heap. In a fresh process the
        second death is the config's own."""

        def ask() -> tuple[Answer, ...]:
            limit = self._limit(visit)
            answers: tuple[Answer, ...] = self._session.call(
                "measure",
                visit,
                forgotten,
                limit_s=limit,
                memory_bytes=self._memory_bytes,
                parts_s=self._parts_s(limit),
            ).value
            return answers

        doubts, set_ups = 1, SET_UPS
        while True:
            try:
                return ask()
            except WorkerDied as death:
                killed, made = (
                    death.signal == signal.SIGKILL,
                    self._session.generation == self._session.made,
                )
                if made and doubts and (killed or self._used == self._session.generation):
                    doubts -= 1
                elif not made and set_ups and killed:
                    set_ups -= 1  # it had not come to any config yet
                else:
                    raise
            finally:
                self._used = self._session.generation

    def _limit(self, visit: Visit) -> float | None:
        """The first call of a worker that was made ready beforehand has more to do than others."""
        if visit.limit_s is None:
            return None
        limit_s = visit.limit_s if visit.first else visit.limit_s * len(visit.built)
        fresh = self._used != self._session.generation
        return limit_s + FIRST_CALL_S if self._ahead and fresh else limit_s

    def _parts_s(self, limit_s: float | None) -> dict[str, float]:
        first = math.inf if self._first_call_s is None else self._first_call_s()
        return {FIRST_CALL: first, RUNNING: math.inf if limit_s is None else limit_s}

    def _limited(self, failure: ConfigFailure) -> ConfigFailure:
        if failure.status is not Status.RESOURCES or failure.limit or self._memory_bytes is None:
            return failure
        limit = Limit("memory_bytes", self._memory_bytes)
        return ConfigFailure(failure.status, failure.message, limit, failure.spoils)


def _joined(before: Sampled, later: Sampled) -> Sampled:
    seconds = dict(before.seconds)
    for phase, spent in later.seconds.items():
        seconds[phase] = seconds.get(phase, 0.0) + spent
    return Sampled(joined([before.reading, later.reading]), FrozenMap(seconds))


def _not_set_up(problem: Exception) -> NotSetUp:
    kind = "" if isinstance(problem, WorkerDied | WorkerTimeout) else type(problem).__name__
    name = f"{kind}: " if kind and not isinstance(problem, RemoteError) else ""
    text = f"the measuring process could not be set up: {name}{problem}"
    if isinstance(problem, RemoteError):
        kind = problem.type_name
    return NotSetUp(Status.RUN_ERROR, text, kind)
