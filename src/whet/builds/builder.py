"""`Builder`: many configs built at once, each in a process that can be killed."""

from __future__ import annotations

import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from whet.builds.job import BuildResult, Built, Job
from whet.builds.shared import BuildPool, PoolSource
from whet.core.config import Config
from whet.core.errors import ConfigFailure, HostFailure, host_failure
from whet.core.frozen import FrozenMap
from whet.core.status import Limit, LimitKind, Status
from whet.workers.answers import WorkerNotStarted
from whet.workers.pool import open_pool
from whet.workers.process import Mode
from whet.workers.task import Kind, Task, TaskOutcome

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


FLOOR_S = 1.5
FACTOR = 3.0

# How many builds must have led to a measured config before any is cut.
ENOUGH = 3


@dataclass(frozen=True)
class Cut:
    """A limit for builds, and why it is that: the end of the sentence "cut after 2.9 s: …"."""

    limit_s: float
    why: str

    @property
    def text(self) -> str:
        return f"stopped after {self.limit_s:.2g} s: {self.why}"


def cut_for(standing_s: Sequence[float], measured: int, ceiling_s: float | None) -> Cut | None:
    """A few times what the slowest config that may still win took to build.

    `standing_s` are the build times of those, `measured` is how many that were built have been
    measured; `ceiling_s` is the limit that was set. None while too little is known, and where the
    limit that was set is no higher. Builds compete for the cores, so all of these times are longer
    than they would be alone, those of the builds to be cut as well.
    """
    if measured < ENOUGH or not standing_s:
        return None
    slowest = max(standing_s)
    limit = max(FLOOR_S, FACTOR * slowest)
    if ceiling_s is not None and limit >= ceiling_s:
        return None
    if limit > FACTOR * slowest:
        why = f"the slowest config still in the race took {slowest:.2g} s to build"
    else:
        why = (
            f"{FACTOR:g} times what the slowest config still in the race took to build "
            f"({slowest:.2g} s)"
        )
    return Cut(limit, why)


@dataclass(frozen=True)
class _Order:
    """A build under way. `followers` get its result too, since theirs would be the same. One that
    is `again` was killed once before."""

    config: Config
    job: Job
    priority: int
    limit_s: float | None
    again: bool = False
    followers: list[Config] = field(default_factory=list)


class Builder:
    """Builds what is submitted, lower priorities first, and hands each result out once.

    `jobs` is how many builds run at once (None: one per core), `limit_s` what one may take and
    `memory_bytes` what it may allocate. `on_start` is called with each config whose build starts,
    from another thread. What is in `memory`, by default that of the whole process, is not built
    again, and of equal jobs only the first is built. With `shared`, builds go to that pool, whose
    size and mode hold, and those that it has begun already are taken over.
    """

    def __init__(
        self,
        jobs: int | None = None,
        mode: Mode | str = "spawn",
        limit_s: float | None = None,
        memory_bytes: int | None = None,
        on_start: Callable[[Config], None] | None = None,
        memory: BuildMemory = MEMORY,
        shared: PoolSource | None = None,
    ) -> None:
        self._limit_s = limit_s
        self._memory_bytes = memory_bytes
        self._on_start = on_start
        self._memory = memory
        self._cut: Cut | None = None
        self._cuts: dict[float, Cut] = {}
        self._orders: dict[int, _Order] = {}
        self._in_flight: dict[str, int] = {}
        self._ordering = threading.Lock()
        self._kept: list[BuildResult] = []
        self._refusal: HostFailure | None = None
        self._open: Callable[[], BuildPool]
        if shared is None:
            self._open = lambda: open_pool(jobs, mode, on_start=self._started)
        else:
            self._open = lambda: shared.view(self._started)
        # Workers that are started beforehand are so now; forks need no pool before the first.
        self._pool: BuildPool | None = None if mode == "fork" else self._open()

    def submit(
        self, config: Config, job: Job, priority: int = 0, limit_s: float | None = None
    ) -> None:
        """A build with a limit of its own, `limit_s`, is never cut before that."""
        identity = job.identity
        if identity is not None:
            known = self._recall(identity, limit_s)
            if known is not None:
                self._kept.append(replace(known, config=config))
                return
            if identity in self._in_flight:
                self._orders[self._in_flight[identity]].followers.append(config)
                return
        if self._pool is None:
            self._pool = self._open()
        self._put(self._pool, _Order(config, job, priority, limit_s))

    def cut(self, cut: Cut | None) -> None:
        """From now on a build may take no longer than this, those under way included; None is
        back to `limit_s`. A build that was cut stays so."""
        if cut == self._cut:
            return
        self._cut = cut
        if cut is not None:
            self._cuts[cut.limit_s] = cut
        limit = self._limit_s if cut is None else cut.limit_s
        if self._pool is not None:
            shared = [t for t, order in self._orders.items() if order.limit_s is None]
            self._pool.limit(shared, limit)

    def reorder(self, priorities: Mapping[str, int]) -> None:
        """Gives builds that have not started another priority, by the id of their config."""
        known = {
            ticket: priorities[order.config.id]
            for ticket, order in self._orders.items()
            if order.config.id in priorities
        }
        if self._pool is not None:
            self._pool.reorder(known)

    def ready(self, timeout: float | None = None) -> list[BuildResult]:
        """Finished builds, as soon as there are any.

        Empty when `timeout` seconds have passed, or at once when nothing is pending.
        """
        end = None if timeout is None else time.monotonic() + timeout
        results, self._kept = self._kept, []
        if not results and self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
        while not results and self._pool is not None and self._pool.pending:
            left = None if end is None else max(0.0, end - time.monotonic())
            results = self._results(self._pool.wait(left), self._pool)
            if left == 0.0:
                break
        return results

    def building(self) -> list[Config]:
        with self._ordering:
            return [self._orders[ticket].config for ticket in self._running()]

    def waiting(self) -> list[Config]:
        """Submitted and not started yet, in the order of submission."""
        running = set(self._running())
        return [order.config for ticket, order in self._orders.items() if ticket not in running]

    @property
    def pending(self) -> int:
        """Builds submitted and not yet handed out, those that wait for an equal one left out; and
        one that was refused, until that is said."""
        return len(self._orders) + len(self._kept) + (self._refusal is not None)

    def cancel_all(self) -> None:
        """Drops what waits and kills what runs. Builds that have finished stay to be handed out."""
        if self._pool is not None:
            self._pool.cancel_all()
            while self._pool.pending:
                self._kept += self._results(self._pool.wait(None))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, pool: BuildPool, order: _Order) -> None:
        job = order.job
        shared = self._limit_s if self._cut is None else self._cut.limit_s
        limit = shared if order.limit_s is None else order.limit_s
        task = Task(
            job.call,
            job.args,
            limit,
            self._memory_bytes,
            str(order.config),
            job.identity,
            job.first,
        )
        with self._ordering:  # the build may start before its ticket is written down
            ticket = pool.submit(task, order.priority)
            self._orders[ticket] = order
        if job.identity is not None:
            self._in_flight[job.identity] = ticket

    def _running(self) -> tuple[int, ...]:
        return () if self._pool is None else self._pool.running()

    def _started(self, ticket: int) -> None:
        if self._on_start is not None:
            with self._ordering:
                config = self._orders[ticket].config
            self._on_start(config)

    def _recall(self, identity: str, limit_s: float | None) -> BuildResult | None:
        limits: dict[LimitKind, float | None] = {
            "build_s": self._limit_s if limit_s is None else limit_s,
            "memory_bytes": self._memory_bytes,
        }
        return self._memory.recall(identity, limits, exempt=limit_s is not None)

    def _results(
        self, outcomes: list[TaskOutcome], retry: BuildPool | None = None
    ) -> list[BuildResult]:
        """What was killed for the first time is no result: it goes back to `retry`, if anywhere.
        What no config can help raises `HostFailure`, now or, where others are built, when these
        have been handed out: no process to be had, or no space."""
        results = []
        refusal: HostFailure | None = None
        for outcome in outcomes:
            with self._ordering:
                order = self._orders.pop(outcome.ticket)
            identity = order.job.identity
            if identity is not None:
                self._in_flight.pop(identity, None)
            if outcome.kind is Kind.CANCELLED:
                continue
            if outcome.kind is Kind.NOT_STARTED:
                refusal = WorkerNotStarted(outcome.error)
                continue
            if _killed(outcome) and not order.again:
                if retry is not None:
                    self._put(retry, replace(order, again=True))
                continue
            result = self._result(order, outcome)
            if result.status is Status.BUILD_ERROR:
                short = host_failure(f"[{order.config}] could not be built", result.error)
                if short is not None:
                    refusal = short
                    continue
            results.append(result)
            same = replace(result, stages=FrozenMap(), seconds=0.0, remembered=True)
            results += [replace(same, config=follower) for follower in order.followers]
            if identity is not None and _would_repeat(outcome):
                self._memory.keep(identity, result, outcome.limit_s)
        if refusal is not None and retry is not None:
            if not results:
                raise refusal
            self._refusal = refusal
        return results

    def _result(self, order: _Order, outcome: TaskOutcome) -> BuildResult:
        blank = BuildResult(
            config=order.config,
            status=Status.BUILD_ERROR,
            stages=outcome.stages,
            seconds=outcome.seconds,
            started=outcome.started,
            ended=outcome.ended,
            worker=outcome.worker,
        )
        if outcome.kind is Kind.DONE:
            return _built(blank, outcome.value)
        if outcome.kind is Kind.TIMED_OUT:
            return self._timed_out(blank, order, outcome)
        if outcome.kind is Kind.DIED:
            return replace(blank, error=f"the build {outcome.error}")
        if isinstance(outcome.exception, ConfigFailure):
            failure = outcome.exception
            return replace(blank, status=failure.status, error=failure.message, limit=failure.limit)
        if isinstance(outcome.exception, MemoryError):
            return self._out_of_memory(blank, outcome)
        return replace(blank, error=outcome.error)

    def _timed_out(self, blank: BuildResult, order: _Order, outcome: TaskOutcome) -> BuildResult:
        """The limit that was set is what a later run must raise, however early this one cut."""
        allowed = outcome.limit_s
        was_set = self._limit_s if order.limit_s is None else order.limit_s
        cut = self._cuts.get(allowed) if allowed is not None and allowed != was_set else None
        value = allowed if was_set is None else was_set
        return replace(
            blank,
            status=Status.BUILD_TIMEOUT,
            error=f"the build {outcome.error}" if cut is None else cut.text,
            limit=None if value is None else Limit("build_s", value),
        )

    def _out_of_memory(self, blank: BuildResult, outcome: TaskOutcome) -> BuildResult:
        allowed = self._memory_bytes
        if allowed is None:
            return replace(
                blank,
                status=Status.RESOURCES,
                error=f"the build ran out of memory\n{outcome.error}",
            )
        return replace(
            blank,
            status=Status.RESOURCES,
            error=f"the build needed more than its limit of {allowed / 2**20:.0f} MiB of memory",
            limit=Limit("memory_bytes", allowed),
        )


def _killed(outcome: TaskOutcome) -> bool:
    """SIGKILL comes from outside, and need not be the build's doing: it deserves another try."""
    return outcome.kind is Kind.DIED and outcome.signal == signal.SIGKILL


def _would_repeat(outcome: TaskOutcome) -> bool:
    """False for what may go well another time: it ran out of memory, or was killed for it."""
    return not (isinstance(outcome.exception, MemoryError) or _killed(outcome))


def _built(blank: BuildResult, value: object) -> BuildResult:
    if isinstance(value, Built):
        return replace(blank, status=Status.OK, artifact=value.artifact, facts=value.facts)
    return replace(blank, error=f"the build returned {type(value).__qualname__}, not Built")
