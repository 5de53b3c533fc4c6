"""What a recorded table says, as findings that a store keeps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np

from whet.core.timing import Summary
from whet.interop import Finding, Tried
from whet.replay.table import Table, TableWorkload


def table_findings(
    table: Table, kernel: str | None = None, device: str | None = None, written: float = 0.0
) -> list[Finding]:
    """One a workload. Samples become a median between its extremes: they were taken by a timer
    of which nothing is known, and are never weighed against samples of ours. `written` is the
    moment that counts where the table names no day."""
    return [
        Finding(
            kernel=kernel or table.kernel,
            device=device or table.device.name,
            key=workload.key,
            source=table.origin.source or "table",
            tried=tuple(_tried(table, workload)),
            best=None if workload.optimum is None else table.configs[workload.optimum.index],
            toolchain=table.toolchain,
            created=_moment(table.origin.date, written),
        )
        for workload in table.workloads
    ]


def _tried(table: Table, workload: TableWorkload) -> Iterator[Tried]:
    for at, config in enumerate(table.configs):
        status = table.status(workload, at)
        if status is None:
            continue
        error = workload.error(at) or table.builds[at].error
        yield Tried(config, status, _summary(workload, at, table.origin.source), error)


def _summary(workload: TableWorkload, at: int, source: str) -> Summary | None:
    median = workload.median_ns(at)
    if median is None:
        return None
    samples = np.concatenate([np.asarray(visit) for visit in workload.samples(at)])
    return Summary(median, float(samples.min()), float(samples.max()), source or "table")


def _moment(day: str, otherwise: float) -> float:
    try:
        return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return otherwise
