"""Whole workloads over devices: each is tuned on one, and whoever is free takes the next."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from whet.core.errors import HostFailure, OtherSourceError, WhetError
from whet.engine.executors.protocol import Seat, SeatLostError
from whet.workers.answers import WorkerDied, WorkerTimeout
from whet.workers.session import RemoteObject

Item = TypeVar("Item")

# How often a workload whose process ended is begun anew, each time on the next free device.
TRIES = 2

# The milestone by which a tuning in another process says that it goes on, and after how long
# without one that process hangs: nothing holds Python's lock for so long.
GOES_ON, SILENT_S = "goes on", 120.0


@dataclass(frozen=True)
class Spread(Generic[Item]):
    """What came of one item: an answer, or why there is none; and where it was tuned."""

    item: Item
    answer: Any
    seat: str
    why: str = ""


def longest_first(items: Iterable[Item], expected_s: Callable[[Item], float]) -> list[Item]:
    """So that no device is left with a long one when the others are done."""
    return sorted(items, key=expected_s, reverse=True)


def size_of(key: Mapping[str, Any]) -> float:
    """The product of the numbers in a key: larger problems have longer kernels."""
    numbers = [abs(v) for v in key.values() if isinstance(v, int | float) and v]
    return math.prod(numbers, start=1.0)


class WorkloadQueue(Generic[Item]):
    """Pure: who takes what next, and what goes back."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._waiting = list(enumerate(items))
        self._tries: dict[int, int] = {}
        self._under_way: dict[str, tuple[int, Item]] = {}

    def take(self, seat: str) -> tuple[int, Item] | None:
        if not self._waiting:
            return None
        one = self._under_way[seat] = self._waiting.pop(0)
        return one

    def done(self, seat: str) -> None:
        del self._under_way[seat]

    def give_back(self, seat: str, *, tried: bool = True) -> bool:
        """False where it has been tried often enough."""
        number, item = self._under_way.pop(seat)
        self._tries[number] = self._tries.get(number, 0) + tried
        if self._tries[number] >= TRIES:
            return False
        self._waiting.insert(0, (number, item))
        return True

    @property
    def under_way(self) -> Mapping[str, tuple[int, Item]]:
        return dict(self._under_way)

    @property
    def over(self) -> bool:
        return not self._waiting and not self._under_way


def spread_workloads(
    seats: Sequence[Seat],
    factory: Callable[[], Any],
    items: Sequence[Item],
    *,
    on_done: Callable[[Spread[Item]], None] = lambda one: None,
    on_lost: Callable[[str, str], None] = lambda seat, why: None,
    silent_s: float = math.inf,
) -> list[Spread[Item]]:
    """Has `factory()` made on each seat and calls its `tune(item)` for each item; what came of
    them, in the order of the items. A device that is lost costs what it was doing, and one that
    does not say `GOES_ON` for `silent_s` is lost; `on_lost` hears of each, and why. Ctrl-C ends the
    calls under way."""
    work = _Work(seats, factory, items, on_done, on_lost, silent_s)
    work.run()
    return work.results()


class _Work(Generic[Item]):
    def __init__(
        self,
        seats: Sequence[Seat],
        factory: Callable[[], Any],
        items: Sequence[Item],
        on_done: Callable[[Spread[Item]], None],
        on_lost: Callable[[str, str], None],
        silent_s: float,
    ) -> None:
        self._on_lost = on_lost
        self._silent_s = silent_s
        self._items = items
        self._seats = seats[: len(items)]
        self._factory = factory
        self._on_done = on_done
        self._queue = WorkloadQueue(items)
        self._news = threading.Condition()
        self._found: dict[int, Spread[Item]] = {}
        self._sessions: dict[str, RemoteObject] = {}
        self._lost: dict[str, str] = {}
        self._ended = False

    def run(self) -> None:
        threads = [
            threading.Thread(target=self._work, args=(seat,), daemon=True) for seat in self._seats
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)  # a join without end cannot be interrupted
        finally:
            with self._news:
                self._ended = True
                self._news.notify_all()
                sessions = list(self._sessions.values())
            for session in sessions:
                session.abort()
                session.close()

    def results(self) -> list[Spread[Item]]:
        if len(self._found) < len(self._items) and len(self._lost) == len(self._seats):
            why = "; ".join(f"{name}: {reason}" for name, reason in self._lost.items())
            raise HostFailure(f"no device is left to tune on ({why})")
        return [self._found[number] for number in sorted(self._found)]

    def _work(self, seat: Seat) -> None:
        try:
            session = seat.session(self._factory)
        except SeatLostError as lost:
            self._leave(seat, lost.reason)
            return
        with self._news:
            self._sessions[seat.name] = session
        while (taken := self._next(seat)) is not None:
            number, item = taken
            try:
                answer = self._tuned(seat, session, item)
            except (SeatLostError, WorkerDied) as problem:
                self._again(seat, number, item, problem)
                if isinstance(problem, SeatLostError):
                    self._leave(seat, problem.reason)
                    return
            except OtherSourceError as problem:
                with self._news:
                    self._queue.give_back(seat.name, tried=False)
                self._leave(seat, str(problem))
                return
            except Exception as problem:
                text = str(problem) if isinstance(problem, WhetError) else repr(problem)
                self._settle(seat, number, Spread(item, None, seat.name, text))
            else:
                self._settle(seat, number, Spread(item, answer, seat.name))

    def _tuned(self, seat: Seat, session: RemoteObject, item: Item) -> Any:
        most = self._silent_s
        try:
            return session.call("tune", item, limit_s=most, parts_s={GOES_ON: most}).value
        except WorkerTimeout:
            raise SeatLostError(seat.name, f"no sign of life for {most:g} s") from None

    def _next(self, seat: Seat) -> tuple[int, Item] | None:
        """Waits where something may come back from a device that is lost."""
        with self._news:
            while not self._ended:
                taken = self._queue.take(seat.name)
                if taken is not None or self._queue.over:
                    return taken
                self._news.wait(1.0)
        return None

    def _settle(self, seat: Seat, number: int, one: Spread[Item]) -> None:
        with self._news:
            self._queue.done(seat.name)
            self._found[number] = one
            self._news.notify_all()
            if not self._ended:
                self._on_done(one)

    def _again(self, seat: Seat, number: int, item: Item, problem: Exception) -> None:
        with self._news:
            if not self._queue.give_back(seat.name):
                one = Spread(item, None, seat.name, f"its process ended: {problem}")
                self._found[number] = one
                if not self._ended:
                    self._on_done(one)
            self._news.notify_all()

    def _leave(self, seat: Seat, why: str) -> None:
        with self._news:
            self._lost[seat.name] = why
            self._news.notify_all()
            if not self._ended:
                self._on_lost(seat.name, why)
