"""`Builder`: many configs built at once, each in a process that can be killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from whet.build.job import BuildResult, Built, Job
from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.core.trial import Limit
from whet.workers import Kind, Mode, Outcome, Task, open_pool


@dataclass(frozen=True)
class _Order:
    config: Config
    limit_s: float | None


class Builder:
    """Builds what is submitted, lower priorities first, and hands each result out once.

    `jobs` is how many builds run at once (None: one per core), `limit_s` what one may take and
    `memory_bytes` what it may allocate. `on_start` is called with each config whose build starts,
    from another thread.
    """

    def __init__(
        self,
        jobs: int | None = None,
        mode: Mode | str = "spawn",
        limit_s: float | None = None,
        memory_bytes: int | None = None,
        on_start: Callable[[Config], None] | None = None,
    ) -> None:
        self._limit_s = limit_s
        self._memory_bytes = memory_bytes
        self._on_start = on_start
        self._orders: dict[int, _Order] = {}
        self._ordering = threading.Lock()
        self._kept: list[BuildResult] = []
        self._pool = open_pool(jobs, mode, on_start=self._started)

    def submit(
        self, config: Config, job: Job, priority: int = 0, limit_s: float | None = None
    ) -> None:
        limit = self._limit_s if limit_s is None else limit_s
        task = Task(job.call, job.args, limit, self._memory_bytes, label=str(config))
        with self._ordering:  # the build may start before its ticket is written down
            self._orders[self._pool.submit(task, priority)] = _Order(config, limit)

    def ready(self, timeout: float | None = None) -> list[BuildResult]:
        """Finished builds, as soon as there are any.

        Empty when `timeout` seconds have passed, or at once when nothing is pending.
        """
        end = None if timeout is None else time.monotonic() + timeout
        results, self._kept = self._kept, []
        while not results and self._pool.pending:
            left = None if end is None else max(0.0, end - time.monotonic())
            results = self._results(self._pool.wait(left))
            if left == 0.0:
                break
        return results

    def building(self) -> list[Config]:
        with self._ordering:
            return [self._orders[ticket].config for ticket in self._pool.running()]

    @property
    def pending(self) -> int:
        """Builds submitted and not yet handed out."""
        return self._pool.pending + len(self._kept)

    def cancel_all(self) -> None:
        """Drops what waits and kills what runs. Builds that have finished stay to be handed out."""
        self._pool.cancel_all()
        while self._pool.pending:
            self._kept += self._results(self._pool.wait(None))

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self, ticket: int) -> None:
        if self._on_start is not None:
            with self._ordering:
                config = self._orders[ticket].config
            self._on_start(config)

    def _results(self, outcomes: list[Outcome]) -> list[BuildResult]:
        results = []
        for outcome in outcomes:
            with self._ordering:
                order = self._orders.pop(outcome.ticket)
            if outcome.kind is not Kind.CANCELLED:
                results.append(self._result(order, outcome))
        return results

    def _result(self, order: _Order, outcome: Outcome) -> BuildResult:
        blank = BuildResult(
            config=order.config,
            status=Status.BUILD_ERROR,
            stages=outcome.stages,
            seconds=outcome.seconds,
            started=outcome.started,
            ended=outcome.ended,
        )
        if outcome.kind is Kind.DONE:
            return _built(blank, outcome.value)
        if outcome.kind is Kind.TIMED_OUT:
            limit = None if order.limit_s is None else Limit("build_s", order.limit_s)
            error = f"the build {outcome.error}"
            return replace(blank, status=Status.BUILD_TIMEOUT, error=error, limit=limit)
        if outcome.kind is Kind.DIED:
            return replace(blank, error=f"the build {outcome.error}")
        if isinstance(outcome.exception, ConfigFailure):
            failure = outcome.exception
            return replace(blank, status=failure.status, error=failure.message, limit=failure.limit)
        if isinstance(outcome.exception, MemoryError):
            return self._out_of_memory(blank, outcome)
        return replace(blank, error=outcome.error)

    def _out_of_memory(self, blank: BuildResult, outcome: Outcome) -> BuildResult:
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
            error=f"the build wanted more than the {allowed / 2**20:.0f} MiB of memory it may have",
            limit=Limit("memory_bytes", allowed),
        )


def _built(blank: BuildResult, value: object) -> BuildResult:
    if isinstance(value, Built):
        return replace(blank, status=Status.OK, artifact=value.artifact, facts=value.facts)
    return replace(blank, error=f"the build returned {type(value).__qualname__}, not Built")
