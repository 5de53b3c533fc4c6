"""What a kernel leaves running in its process would slow down whoever is measured there next."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.workers.reaper import descendants

# The threads of OpenMP runtimes spin for up to 200 ms after a parallel region, and then sleep.
PATIENCE_S = 0.5
_FIRST_WAIT_S = 0.01

# Who uses less of a core than this disturbs nobody visibly.
_BUSY_SHARE = 0.1


def spinning_is_wanted() -> bool:
    """Whether OpenMP's threads were told never to rest, which is no config's fault."""
    policy = os.environ.get("OMP_WAIT_POLICY", "").strip().lower()
    return policy == "active" or os.environ.get("KMP_BLOCKTIME", "").strip().lower() == "infinite"


@contextmanager
def nothing_left_running() -> Iterator[None]:
    """For the first run of one config, in a process where nothing else is going on: threads and
    processes that began inside and do not come to rest after it are a failure that `spoils`."""
    before = _present()
    try:
        yield
    except ConfigFailure as failure:
        if failure.spoils or not _still_running(before):
            raise
        raise ConfigFailure(
            failure.status, failure.message, failure.limit, spoils=True
        ) from failure
    if left := _still_running(before):
        text = f"leaves {left} running after it returned; end or join them first"
        raise ConfigFailure(Status.RUN_ERROR, text, spoils=True)


@dataclass(frozen=True)
class _Usage:
    """`run_s` is exact, but of a process's first thread only; `used_s` is in steps of 10 ms."""

    runnable: bool
    used_s: float
    run_s: float

    def busy_since(self, earlier: _Usage, seconds: float) -> bool:
        """Runnable counts also without progress: on a full machine it waits for its turn."""
        spent = max(self.used_s - earlier.used_s, self.run_s - earlier.run_s)
        return self.runnable or spent >= _BUSY_SHARE * seconds


def _still_running(before: frozenset[str]) -> str:
    """`3 threads and 1 process`; empty where nobody is new, or all of them come to rest."""
    end = time.monotonic() + PATIENCE_S
    wait = _FIRST_WAIT_S
    new = _present() - before
    while new:
        earlier = _usage(new)
        time.sleep(wait)
        now = _usage(_present() - before)
        busy = [
            one
            for one, usage in now.items()
            if one not in earlier or usage.busy_since(earlier[one], wait)
        ]
        if not busy:
            break
        left = end - time.monotonic()
        if left <= 0:
            return _named(busy)
        wait = min(2 * wait, max(left, _FIRST_WAIT_S))
        new = frozenset(now)
    return ""


def _present() -> frozenset[str]:
    """The folders, in /proc, of this process's threads and of all processes below it."""
    try:
        threads = [f"/proc/self/task/{name}" for name in os.listdir("/proc/self/task")]
    except OSError:
        return frozenset()
    return frozenset([*threads, *(f"/proc/{pid}" for pid in _below())])


def _below() -> set[int]:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # there is none, as nearly always: no need to look at every process
        return set()
    return descendants(os.getpid())


def _usage(folders: Iterable[str]) -> dict[str, _Usage]:
    found: dict[str, _Usage] = {}
    for folder in folders:
        with suppress(OSError):  # it has ended
            found[folder] = _usage_of(folder)
    return found


def _usage_of(folder: str) -> _Usage:
    with open(f"{folder}/stat", encoding="utf-8", errors="replace") as file:
        text = file.read()
    fields = text[text.rindex(")") + 2 :].split()
    used_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    run_s = 0.0
    with suppress(OSError), open(f"{folder}/schedstat") as file:
        run_s = int(file.read().split()[0]) / 1e9
    return _Usage(fields[0] == "R", used_s, run_s)


def _named(busy: list[str]) -> str:
    threads = sum("/task/" in one for one in busy)
    counts = [(threads, "thread", "threads"), (len(busy) - threads, "process", "processes")]
    return " and ".join(f"{n} {one if n == 1 else many}" for n, one, many in counts if n)
