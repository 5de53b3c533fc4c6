"""A seat with a bench opened on it, and many of them at work at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from whet.core.errors import ConfigFailure, HostFailure, OtherSourceError
from whet.engine.executors.protocol import SeatLostError
from whet.measure.bench.protocol import Answer, Bench, Built, Visit
from whet.measure.bench.remote import NotSetUp

T = TypeVar("T")

# Parts of a visit per station: the fewer are left, the smaller they get, so that all end together.
PARTS = 2


@dataclass(eq=False)
class Station:
    """`doing` is what it measures now, for people."""

    name: str
    bench: Bench
    doing: str = ""
    visits: int = 0

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        """Raises `SeatLostError` where its process is gone or cannot be made ready."""
        self.doing = f"[{visit.built[0][0]}]" + (
            f" and {len(visit.built) - 1} more" if len(visit.built) > 1 else ""
        )
        try:
            answers = self.bench.measure(visit)
        except NotSetUp as problem:
            raise SeatLostError(self.name, problem.message) from problem
        except OtherSourceError as problem:
            raise SeatLostError(self.name, str(problem)) from problem
        finally:
            self.doing = ""
        for one in answers:
            if isinstance(one, NotSetUp):
                raise SeatLostError(self.name, one.message)
        self.visits += 1
        return answers


@dataclass
class SharedVisit:
    """What became of a visit that was shared out: answers and who gave them, by config id; and
    stations that were lost meanwhile, with the reason."""

    answers: dict[str, Answer] = field(default_factory=dict)
    by: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)


class Crew:
    """Stations at work, each in a thread of its own. Whoever waits for them ends their calls when
    interrupted."""

    def __init__(self, most: int = 256) -> None:
        self._threads = ThreadPoolExecutor(most, "whet-device")

    def share_out(self, visit: Visit, stations: Sequence[Station]) -> SharedVisit:
        """Each takes some of what is left, until nothing is. What a lost one had goes back."""
        todo: deque[Built] = deque(visit.built)
        taken, lock = SharedVisit(), threading.Lock()

        def some() -> list[Built]:
            with lock:
                many = max(1, len(todo) // (PARTS * len(stations)))
                return [todo.popleft() for _ in range(min(many, len(todo)))]

        def work(station: Station) -> None:
            while chunk := some():
                try:
                    answers = station.measure(visit.of(*chunk))
                except SeatLostError as lost:
                    with lock:
                        todo.extendleft(reversed(chunk))
                        taken.lost[station.name] = lost.reason
                    return
                with lock:
                    for (config, _), one in zip(chunk, answers, strict=True):
                        taken.answers[config.id], taken.by[config.id] = one, station.name

        left = list(stations)
        while left and todo:
            self.together({one.name: partial(work, one) for one in left}, stations)
            left = [one for one in left if one.name not in taken.lost]
        return taken

    def together(
        self, calls: Mapping[str, Callable[[], T]], stations: Sequence[Station]
    ) -> dict[str, T]:
        """All at the same time; what each has returned. The first exception is raised when all
        have ended."""
        futures: dict[str, Future[T]] = {
            name: self._threads.submit(call) for name, call in calls.items()
        }
        try:
            wait(futures.values())
        except BaseException:
            for station in stations:
                station.bench.end_call()
            raise
        return {name: future.result() for name, future in futures.items()}

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def failed(answer: Answer) -> bool:
    return isinstance(answer, ConfigFailure)


class NoDeviceLeftError(HostFailure):
    """Every device is lost or was left out."""
