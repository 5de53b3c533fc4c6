"""A board that all ranks of a process group can read and write, whoever of them is alive."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol

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
        Thread(target=_serve, args=(store, self._calls), name="whet board", daemon=True).start()
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
