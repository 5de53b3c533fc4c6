"""What this process has built before: the same thing is never built twice, failures included."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from whet.builds.job import BuildResult
from whet.core.frozen import FrozenMap
from whet.core.status import Limit, LimitKind, Status

# A limit must rise by this much before what failed under the old one is tried again: limits that
# are derived from the machine (free memory) wobble from run to run.
RISE = 1.25

CAPACITY = 8192


def outgrown(limit: Limit, now: float | None) -> bool:
    """True where `now` is so much higher that what failed under `limit` deserves another try."""
    return now is None or now > limit.ceiling * RISE


@dataclass(frozen=True)
class _Memo:
    """`allowed_s` is the limit that ended the build, which may have been below the one set."""

    result: BuildResult
    allowed_s: float | None


class BuildMemory:
    """Results by the identity of their job; the least recently used go first. For all threads."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._memos: OrderedDict[str, _Memo] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._memos)

    def keep(self, identity: str, result: BuildResult, allowed_s: float | None = None) -> None:
        with self._lock:
            self._memos[identity] = _Memo(result, allowed_s)
            self._memos.move_to_end(identity)
            while len(self._memos) > self._capacity:
                self._memos.popitem(last=False)

    def recall(
        self, identity: str, limits: Mapping[LimitKind, float | None], *, exempt: bool = False
    ) -> BuildResult | None:
        """The result as it was, at no cost; None where there is none, or where a limit that it
        ran into has risen. One that is `exempt` from cutting is not answered with a cut."""
        with self._lock:
            memo = self._memos.get(identity)
            if memo is None:
                return None
            self._memos.move_to_end(identity)
        limit = memo.result.limit
        if limit is not None:
            if exempt and memo.result.status is Status.BUILD_TIMEOUT and memo.allowed_s:
                limit = Limit(limit.kind, memo.allowed_s)
            if outgrown(limit, limits.get(limit.kind)):
                return None
        return replace(memo.result, stages=FrozenMap(), seconds=0.0, remembered=True)

    def clear(self) -> None:
        with self._lock:
            self._memos.clear()


MEMORY = BuildMemory()
