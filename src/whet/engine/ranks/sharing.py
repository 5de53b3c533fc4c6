"""Many workloads shared out among the ranks of a process group, each tuned by one of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whet.engine.ranks.agreement import agreed_on
from whet.engine.ranks.board import Board, BoardLostError

POLL_S = 0.02


class Sharing:
    """What the ranks tell each other about one job they do together, which all call `name`.

    Every rank makes the same exchanges in the same order. One that waits in vain for another, for
    `wait_s`, raises `BoardLostError`.
    """

    def __init__(self, board: Board, name: str, wait_s: float) -> None:
        self._board = board
        self._name = f"whet/{name}"
        self._wait_s = wait_s

    @property
    def rank(self) -> int:
        return self._board.rank

    @property
    def size(self) -> int:
        return self._board.size

    def exchange(self, what: str, mine: Any) -> list[Any]:
        """What every rank says, by rank; waits for all of them."""
        self._board.set(f"{self._name}/{what}/{self.rank}", json.dumps(mine))
        found: list[Any] = []
        end = time.monotonic() + self._wait_s
        for rank in range(self.size):
            while (text := self._board.get(f"{self._name}/{what}/{rank}")) is None:
                if time.monotonic() > end:
                    raise BoardLostError(f"rank {rank} has said nothing for {self._wait_s:g} s")
                time.sleep(POLL_S)
            found.append(json.loads(text))
        return found

    def signal(self, what: str) -> None:
        self._board.set(f"{self._name}/{what}", "")

    def signalled(self, what: str) -> bool:
        return self._board.get(f"{self._name}/{what}") is not None

    def wait_for_signal(self, what: str, mine: Callable[[float], bool]) -> None:
        """Until some rank has given it; `mine` waits for up to so many seconds and says whether
        this one is to give it."""
        end = time.monotonic() + self._wait_s
        while not self.signalled(what):
            if mine(POLL_S):
                self.signal(what)
                return
            if time.monotonic() > end:
                raise BoardLostError(f"no rank has gone on for {self._wait_s:g} s")

    def is_agreed(self, workload_id: str, space_id: str) -> bool:
        """Whether some rank has tuned it."""
        return agreed_on(self._board, f"{workload_id}/{space_id}")


def owners(met: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Which rank tunes what: `met` has, for each rank, the work that each of its workloads is.

    A workload falls to one that has it, the largest first and to whoever has least to do yet: all
    ranks come to the same answer."""
    work: dict[str, int] = {}
    for one in met:
        for name, amount in one.items():
            work[name] = max(amount, work.get(name, 0))
    loads = [0] * len(met)
    found: dict[str, int] = {}
    for name in sorted(work, key=lambda name: (-work[name], name)):
        having = [rank for rank, one in enumerate(met) if name in one]
        found[name] = min(having, key=lambda rank: (loads[rank], rank))
        loads[found[name]] += work[name]
    return found
