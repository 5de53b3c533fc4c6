"""What `whet store` says: listings, what went, and whose results came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from whet.cli.arguments.reading import (
    SHORT_ID,
    contested_lines,
    device_text,
    moment_text,
    problem_text,
)
from whet.cli.arguments.sources import source_labels
from whet.cli.terminal.output import (
    Column,
    bytes_text,
    columns,
    count_text,
    ns_text,
    page,
    table,
    wrap,
)
from whet.core.workload import Workload
from whet.store import GcReport, MergedPick, StoreReader, WorkloadSummary
from whet.store.merging import identity, lookalikes


def listing(location: str, size: int | None, known: list[WorkloadSummary]) -> list[str]:
    count = count_text(len(known), "workload")
    lines = [location, count if size is None else f"{count}, {bytes_text(size)}"]
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
        text = "'trials' counts every stored result; the latest for a config counts (trials --all)"
        lines += ["", *wrap(text, page(), indent=2)]
    contested = contested_lines(known, columns())
    return [*lines, *([""] if contested else []), *contested]


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


def pick_lines(picks: Sequence[MergedPick]) -> list[str]:
    """Every pick that a merge has changed or made contested."""
    lines: list[str] = []
    for one in picks:
        name, now = problem_text(one.workload), f"[{one.now.trial.config}]"
        rivals = " and ".join(f"[{rival.config}]" for rival in one.now.rivals)
        if one.changed and one.before is not None:
            said = f"pick changed: {name}: [{one.before.config}] -> {now}"
            said += f", contested by {rivals}" if rivals else ""
        else:
            said = f"contested: {name}: {now} stays, but {rivals} may be faster"
        lines += ["  " + line for line in wrap(said, page() - 2, indent=2)]
    if any(one.now.rivals for one in picks):
        lines += wrap(
            "for a contested pick, the stores disagree on which config is faster; tune it "
            "again to measure them side by side",
            page(),
        )
    return lines


def picks_json(picks: Sequence[MergedPick]) -> list[dict[str, Any]]:
    return [
        {
            "workload": one.workload.to_json(),
            "before": None if one.before is None else dict(one.before.config),
            "now": dict(one.now.trial.config),
            "changed": one.changed,
            "contested": [dict(rival.config) for rival in one.now.rivals],
        }
        for one in picks
    ]


def namesakes(store: StoreReader) -> list[str]:
    every = (one.workload.device for one in store.workloads())
    return [
        line
        for several in lookalikes(every)
        for line in wrap(
            f"note: '{several[0].name}' stands for {len(several)} different devices, whose "
            f"results are kept separate: {', '.join(device_text(device) for device in several)}",
            page(),
            indent=2,
        )
    ]
