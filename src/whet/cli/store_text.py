"""What `whet store` says: listings, what went, and whose results came."""

from __future__ import annotations

import os
from collections import Counter

from whet.cli.output import Column, bytes_text, columns, count_text, ns_text, page, table, wrap
from whet.cli.reading import SHORT_ID, device_text, moment_text, problem_text
from whet.cli.sources import source_labels
from whet.core.workload import Workload
from whet.store import GcReport, Store, WorkloadSummary
from whet.store.merging import identity, lookalikes


def listing(location: str, known: list[WorkloadSummary]) -> list[str]:
    size = bytes_text(os.path.getsize(location)) if os.path.isfile(location) else "in memory"
    lines = [location, f"{count_text(len(known), 'workload')}, {size}"]
    sources = source_labels([one.workload for one in known])
    layout = [
        Column("id"),
        Column("workload", flexible=True),
        *([Column("source", flexible=True)] if sources else []),
        Column("configs", align="right"),
        Column("ok", align="right"),
        Column("trials", align="right"),
        Column("best", align="right"),
        Column("last tuned"),
    ]
    rows = [
        (
            one.workload.id[:SHORT_ID],
            problem_text(one.workload),
            *([sources.get(one.workload.id, "")] if sources else []),
            f"{one.configs:,}",
            f"{one.ok:,}",
            f"{one.trials:,}",
            ns_text(one.median_ns),
            moment_text(one.active),
        )
        for one in known
    ]
    if not known:
        return lines
    lines += ["", *table(layout, rows, columns())]
    if any(one.trials > one.configs for one in known):
        text = "trials counts every stored outcome; the latest of a config stands (trials --all)"
        lines += ["", *wrap(text, page(), indent=2)]
    return lines


def counts_text(workloads: int, trials: int, runs: int) -> str:
    return ", ".join(
        (count_text(workloads, "workload"), count_text(trials, "trial"), count_text(runs, "run"))
    )


def swept(report: GcReport) -> list[str]:
    counts = counts_text(report.workloads, report.trials, report.runs)
    verb = "would remove" if report.dry_run else "removed"
    lines = [f"{verb} {counts} ({bytes_text(report.bytes_freed)})"]
    if report.kernels:
        kernels = ", ".join(f"{n:,} of {kernel}" for kernel, n in report.kernels.items())
        lines += wrap(f"workloads: {kernels}", page(), indent=2)
    return lines


def by_device(workloads: list[Workload]) -> list[str]:
    """`  3 workloads of NVIDIA H200 (sm_90, driver 570.12)`, for every device."""
    counts = Counter(identity(workload.device) for workload in workloads)
    return [
        f"  {count_text(n, 'workload')} of {device_text(device)}"
        for device, n in counts.most_common()
    ]


def namesakes(store: Store) -> list[str]:
    every = (one.workload.device for one in store.workloads())
    return [
        line
        for several in lookalikes(every)
        for line in wrap(
            f"note: '{several[0].name}' is {len(several)} devices, and no result of one is taken "
            f"for another's: {', '.join(device_text(device) for device in several)}",
            page(),
            indent=2,
        )
    ]
