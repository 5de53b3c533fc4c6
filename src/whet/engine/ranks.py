"""Ranks of a process group: one of them tunes, all of them use its choice.

Everything that is decided stands in one note on a board that all ranks can read and write, and the
note changes only by compare-and-set from what was read: nothing, then a claim, then perhaps claims
of later generations, and at last the choice, which stays. A rank that comes back late, or never
comes, changes nothing.

    (nothing) ──► claim 1, rank 3 ──► claim 2, rank 4 ──► … ──► claim n with the choice
                    rank 3 falls silent: the next takes over

Why it is so: docs/decisions/ranks.md.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from whet.core.config import Config
from whet.core.errors import TuningFailedError, WhetError
from whet.core.run import Result
from whet.core.trial import Trial

# A single question to the process group's store takes well below a millisecond. One that takes this
# long will never be answered: the process that serves it has stopped, or its host is gone.
ANSWER_S = 10.0

# The first one opens a connection, and torch then looks up the names of both ends.
FIRST_ANSWER = 3

_Call = tuple[Callable[[Any], Any], "SimpleQueue[tuple[Any, Exception | None]]"]


class BoardLostError(Exception):
    """Nothing can be read or written any more; the message says why."""


class Board(Protocol):
    """Short texts under keys. No method blocks for longer than a stated time; what cannot be done
    within it is a `BoardLostError`."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def get(self, key: str) -> str | None: ...

    def set(self, key: str, text: str) -> None: ...

    def swap(self, key: str, expected: str | None, text: str) -> bool:
        """Writes `text` where `expected` is what stands there, None for nothing, as one step that
        only one rank can win; says whether it was written."""
        ...


class GroupBoard:
    """The key-value store behind `torch.distributed`.

    A thread of its own asks the questions, on a connection of its own: a store answers one thread
    after the other, and one that waits for its peers holds up all the rest. A process that was
    forked has neither, so it needs a new board.
    """

    def __init__(self, store: Any, rank: int, size: int, answer_s: float = ANSWER_S) -> None:
        self.rank = rank
        self.size = size
        self._answer_s = answer_s
        self._lost = ""
        self._answered = False
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        threading.Thread(
            target=_serve, args=(store, self._calls), name="whet board", daemon=True
        ).start()
        self._ended = weakref.finalize(self, self._calls.put, None)

    def get(self, key: str) -> str | None:
        # A key that is not there would make `get` wait for it.
        text = self._ask(lambda store: store.get(key) if store.check([key]) else None)
        return None if text is None else bytes(text).decode()

    def set(self, key: str, text: str) -> None:
        self._ask(lambda store: store.set(key, text))

    def swap(self, key: str, expected: str | None, text: str) -> bool:
        found = self._ask(lambda store: store.compare_set(key, expected or "", text))
        return bytes(found).decode() == text

    def close(self) -> None:
        self._ended()

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        if self._lost:
            raise BoardLostError(self._lost)
        answers: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()
        limit_s = self._answer_s * (1 if self._answered else FIRST_ANSWER)
        self._calls.put((question, answers))
        try:
            value, error = answers.get(timeout=limit_s)
        except Empty:
            self._lost = f"the process group's store has not answered for {limit_s:g} s"
            raise BoardLostError(self._lost) from None
        self._answered = True
        if error is not None:
            text = (str(error).strip() or type(error).__name__).splitlines()[0]
            self._lost = f"the process group's store failed: {text}"
            raise BoardLostError(self._lost) from error
        return value


def _serve(store: Any, calls: SimpleQueue[_Call | None]) -> None:
    own: Any = None
    while (call := calls.get()) is not None:
        question, answers = call
        try:
            if own is None:
                # Older versions cannot open a second connection; there the one must do.
                own = store.clone() if hasattr(store, "clone") else store
            answers.put((question(own), None))
        except Exception as error:
            answers.put((None, error))


_open: tuple[int, Any, GroupBoard] | None = None


def group_board() -> GroupBoard | None:
    """The board of this process's group; None without `torch.distributed`, or alone in it.

    Never imports torch: whoever has a process group has imported it.
    """
    global _open
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_initialized():
            return None
        rank, size = distributed.get_rank(), distributed.get_world_size()
        store = distributed.distributed_c10d._get_default_store()
    except (AttributeError, RuntimeError, ValueError):  # half imported, or just being destroyed
        return None
    if size < 2 or rank < 0:
        return None
    if _open is not None and _open[0] == os.getpid():
        if _open[1] is store:
            return _open[2]
        _open[2].close()
    _open = (os.getpid(), store, GroupBoard(store, rank, size))
    return _open[2]


@dataclass(frozen=True)
class Agreed:
    """What all ranks use, and the rank it comes from.

    `best` is None where tuning failed, for the given `reason`; a `best` without a timing was never
    measured, and `reason` says why it is used all the same.
    """

    rank: int
    best: Trial | None
    equals: tuple[Config, ...] = ()
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "best": None if self.best is None else self.best.to_json(),
            "equals": [dict(config) for config in self.equals],
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Agreed:
        return cls(
            rank=data["rank"],
            best=None if data["best"] is None else Trial.from_json(data["best"]),
            equals=tuple(Config(config) for config in data["equals"]),
            reason=data["reason"],
        )


@dataclass(frozen=True)
class Progress:
    """How far the claimant has come: trials so far, and the best of them."""

    trials: int = 0
    best: Trial | None = None


@dataclass(frozen=True)
class Patience:
    """How long to wait: `wait_s` in all, `silence_s` without a sign of life from the claimant.

    Ranks take over in the order in which they follow the silent one, each `step_s` after the one
    before it, so that it is always the same rank if that one lives.
    """

    wait_s: float
    silence_s: float
    step_s: float
    beat_s: float
    poll_s: float

    @classmethod
    def of(cls, wait_s: float, size: int) -> Patience:
        silence_s = min(10.0, wait_s / 30)
        return cls(
            wait_s=wait_s,
            silence_s=silence_s,
            step_s=silence_s / size,
            beat_s=silence_s / 10,
            poll_s=min(1.0, max(0.02, size / 1000)),  # about a thousand looks a second by all ranks
        )


class Clock(Protocol):
    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    def every(self, seconds: float, act: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls `act` now and then again, beside what is done in the block, and not after it."""
        ...


class SystemClock:
    """The real one; `every` is a thread."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    @contextmanager
    def every(self, seconds: float, act: Callable[[], None]) -> Iterator[None]:
        ended = threading.Event()

        def repeat() -> None:
            act()
            while not ended.wait(seconds):
                act()

        thread = threading.Thread(target=repeat, name="whet heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@dataclass(frozen=True)
class _Note:
    generation: int
    rank: int
    agreed: Agreed | None = None

    def text(self) -> str:
        agreed = None if self.agreed is None else self.agreed.to_json()
        return json.dumps({"generation": self.generation, "rank": self.rank, "agreed": agreed})


_UNREADABLE = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
    WhetError,
)


def _note(text: str | None) -> _Note | None:
    if text is None:
        return None
    try:
        data = json.loads(text)
        agreed = None if data["agreed"] is None else Agreed.from_json(data["agreed"])
        return _Note(data["generation"], data["rank"], agreed)
    except _UNREADABLE:
        raise BoardLostError(
            "another rank sent an unknown message; use the same version of whet on all ranks"
        ) from None


def agreed_on(board: Board, identity: str) -> bool:
    """Whether all ranks know what to use, a failure included."""
    note = _note(board.get(_key(identity)))
    return note is not None and note.agreed is not None


def _key(identity: str) -> str:
    return f"whet/{identity}"


# Of so many attempts to write a decision one succeeds, or finds another rank's, unless the board
# does not compare and set as it should.
REFUSALS = 100

# Written by a claimant that gives up without an answer, in place of a heartbeat.
_RESIGNED = "resigned"


class Agreement:
    """One rank's part in agreeing on `identity`, which names the workload and the space.

    `tune` is called at most once, and only if this rank has the claim; `progress` tells how far it
    has come, from another thread. `stopgap` is what to use where time is up and nothing was found.
    """

    def __init__(
        self,
        board: Board,
        identity: str,
        wait_s: float,
        *,
        tune: Callable[[], Result],
        progress: Callable[[], Progress],
        stopgap: Callable[[], Agreed],
        clock: Clock | None = None,
    ) -> None:
        self._board = board
        self._key = _key(identity)
        self._patience = Patience.of(wait_s, board.size)
        self._tune = tune
        self._progress = progress
        self._stopgap = stopgap
        self._clock: Clock = clock or SystemClock()
        self._found: Result | TuningFailedError | None = None

    def reach(self) -> Result | Agreed:
        """This rank's own result if that is what all use, else what the others agreed on.

        Ends within the wait, plus what `tune` takes if it falls to this rank. Raises what `tune`
        raises, and `BoardLostError` where nothing can be agreed and nothing was found here.
        """
        try:
            step: Result | Agreed | _Note = self._follow()
            while isinstance(step, _Note):
                step = self._lead(step) or self._follow()
            return step
        except BoardLostError:
            if self._found is None:
                raise
            return self._own()

    def _own(self) -> Result:
        if isinstance(self._found, Result):
            return self._found
        assert self._found is not None
        raise self._found

    def _lead(self, claim: _Note) -> Result | None:
        """None where the claim was lost meanwhile, and somebody else's word counts."""
        beats = count()

        def beat() -> None:
            progress = self._progress()
            best = None if progress.best is None else progress.best.to_json()
            text = json.dumps({"beat": next(beats), "trials": progress.trials, "best": best})
            with suppress(BoardLostError):
                self._board.set(self._pulse(claim), text)

        try:
            if self._found is None:
                with self._clock.every(self._patience.beat_s, beat):
                    self._found = self._tune()
        except TuningFailedError as error:
            self._found = error
        except BaseException:
            with suppress(BoardLostError):
                self._board.set(self._pulse(claim), _RESIGNED)
            raise
        if self._swap(claim, replace(claim, agreed=self._published(self._found))):
            return self._own()
        return None

    def _published(self, found: Result | TuningFailedError) -> Agreed:
        if isinstance(found, TuningFailedError):
            return Agreed(self._board.rank, None, reason=str(found))
        return Agreed(self._board.rank, found.best, found.equals)

    def _follow(self) -> Agreed | _Note:
        """The choice, or a claim of this rank's own."""
        clock, patience = self._clock, self._patience
        began = heard = clock.now()
        seen: tuple[_Note | None, str | None] | None = None
        refusals = 0
        pause = 0.001
        while True:
            note = _note(self._board.get(self._key))
            if note is not None and note.agreed is not None:
                return note.agreed
            pulse = None if note is None else self._board.get(self._pulse(note))
            now = clock.now()
            if (note, pulse) != seen:
                seen, heard = (note, pulse), now
            if note is not None and now - began >= patience.wait_s:
                agreed = self._so_far(note, pulse)
                if self._swap(note, replace(note, agreed=agreed)):
                    return agreed
                refusals += 1
                if refusals == REFUSALS:
                    raise BoardLostError("the process group's store does not accept the decision")
            elif note is None or now - heard >= self._tolerance(note, pulse):
                claim = _Note(1 if note is None else note.generation + 1, self._board.rank)
                if self._swap(note, claim):
                    return claim
            clock.sleep(pause)
            pause = min(patience.poll_s, 2 * pause)

    def _tolerance(self, note: _Note, pulse: str | None) -> float:
        """How long this rank lets the claimant of `note` be silent."""
        place = (self._board.rank - note.rank - 1) % self._board.size
        silence = 0.0 if pulse == _RESIGNED else self._patience.silence_s
        return silence + place * self._patience.step_s

    def _so_far(self, note: _Note, pulse: str | None) -> Agreed:
        """What there is when the time is up: the claimant's best yet, else the stopgap."""
        if pulse is None or pulse == _RESIGNED:
            return self._stopgap()
        try:
            progress = json.loads(pulse)
            best = None if progress["best"] is None else Trial.from_json(progress["best"])
            reason = (
                f"the best of {progress['trials']} trials when waiting for the other ranks "
                "timed out"
            )
        except _UNREADABLE:  # a rank of another version; nothing it says can be used
            best = None
        return self._stopgap() if best is None else Agreed(note.rank, best, reason=reason)

    def _pulse(self, note: _Note) -> str:
        return f"{self._key}/{note.generation}"

    def _swap(self, old: _Note | None, new: _Note) -> bool:
        return self._board.swap(self._key, None if old is None else old.text(), new.text())


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
