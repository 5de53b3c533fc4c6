"""What may be spent beside somebody's calls: a share of the time they take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Time without calls is not calls' time: a gap between two counts for no more than this.
LONGEST_GAP_S = 1.0

# What counting one call costs, which nobody could time without spending more, and after how many
# calls it can be said that they come too quickly even for that.
CALL_S = 2.5e-7
ENOUGH_CALLS = 10_000

# The clock is looked at about this often, and at the latest after so many calls.
LOOK_EVERY_S = 1e-2
MOST_UNSEEN_CALLS = 1000


class TimeBudget:
    """`spent_s` stays below `share` of `elapsed_s`, as long as whoever spends asks `covers` first
    for no less than it will take; what it took beyond that is paid off before `covers` says yes
    again. One allowance may be shared by many that spend, and has room for one at a time. Where a
    call of `counts_call` would cost too much, `unseen` and `look_after` are what it looks at.
    """

    def __init__(self, share: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.share = share
        self.spent_s = 0.0
        self.elapsed_s = 0.0
        self.calls = 0
        self.clock = clock
        self._last = clock()
        self.unseen = 0
        self.look_after = 1
        self._inside = threading.Lock()

    def counts_call(self) -> bool:
        """Counts a call; True where it is time to look whether something can be afforded."""
        self.unseen += 1
        return self.unseen >= self.look_after

    def covers(self, seconds: float) -> bool:
        return self.spent_s + seconds <= self.share * self.elapsed_s

    @property
    def too_little(self) -> bool:
        """Whether counting calls takes all there is."""
        return self.calls >= ENOUGH_CALLS and CALL_S * self.calls > self.share * self.elapsed_s

    @property
    def pace_s(self) -> float:
        """From one call to the next."""
        return self.elapsed_s / max(1, self.calls)

    @contextmanager
    def spending(self) -> Iterator[bool]:
        """Books what happens in the block; False where another thread is in one."""
        if not self._inside.acquire(blocking=False):
            yield False
            return
        try:
            start = self._pass()
            try:
                yield True
            finally:
                end = self.clock()
                self.spent_s += end - start
                self.elapsed_s += end - start
                self._last = end
        finally:
            self._inside.release()

    def _pass(self) -> float:
        """Books the calls since the last time, and says how many may come before the next."""
        now, calls = self.clock(), self.unseen
        self.unseen = 0
        passed = min(now - self._last, LONGEST_GAP_S * max(1, calls))
        self.calls += calls
        self.elapsed_s += passed
        self.spent_s += CALL_S * calls
        pace = passed / max(1, calls)
        self.look_after = max(1, min(MOST_UNSEEN_CALLS, int(LOOK_EVERY_S / max(pace, 1e-9))))
        return now
