"""Where the wall time of a run goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from whet.core.frozen import FrozenMap
from whet.core.trial import WALL_PHASES, WallPhase


class WallLedger:
    """Gives every instant of one run to one phase.

    The engine's thread does one thing at a time, and what it does outranks what others do
    meanwhile: an instant spent measuring belongs to `measure` however many builds go on. Time that
    no phase claims is `idle`, which is the engine's own overhead.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._start = clock()
        self._spent: dict[WallPhase, float] = dict.fromkeys(WALL_PHASES, 0.0)

    @property
    def elapsed(self) -> float:
        return self._clock() - self._start

    @contextmanager
    def phase(self, phase: WallPhase) -> Iterator[None]:
        start = self._clock()
        try:
            yield
        finally:
            self._spent[phase] += self._clock() - start

    @contextmanager
    def measuring(self, parts: dict[str, float]) -> Iterator[None]:
        """Like `phase`, for a call that tells afterwards, in `parts`, what it was made of.

        What a call took beyond its parts (messages between processes, a worker's start) is load.
        """
        start = self._clock()
        try:
            yield
        finally:
            whole = self._clock() - start
            measure = parts.get("measure", 0.0) + parts.get("warmup", 0.0)
            check, first_call = parts.get("check", 0.0), parts.get("first_call", 0.0)
            known = measure + check + first_call
            scale = min(1.0, whole / known) if known else 1.0
            self._spent["measure"] += measure * scale
            self._spent["check"] += check * scale
            self._spent["first_call"] += first_call * scale
            self._spent["load"] += max(0.0, whole - known * scale)

    def close(self) -> FrozenMap[float]:
        """The ledger so far; its values sum to the run's length."""
        spent: dict[str, float] = {phase: self._spent[phase] for phase in WALL_PHASES}
        spent["idle"] += max(0.0, self.elapsed - sum(spent.values()))
        return FrozenMap(spent)
