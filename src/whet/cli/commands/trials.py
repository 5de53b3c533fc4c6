"""`whet show trials`: every config that was tried, the fastest first, failures last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from whet.cli.arguments.reading import chosen, coverage_of, empty_as, open_known
from whet.cli.terminal.output import (
    Column,
    columns,
    count_text,
    first_line,
    flexible,
    narrowed,
    ns_text,
    page,
    print_json,
    print_lines,
    right,
    table,
    times_text,
    told_by_values,
    wrap,
)
from whet.core.errors import UsageError, did_you_mean
from whet.core.status import Status

if TYPE_CHECKING:
    from whet.core.config import Config
    from whet.core.run import Coverage
    from whet.core.trial import Trial
    from whet.store import WorkloadSummary

SHOWN = 20


def trials(
    name: str | None,
    status: Sequence[str],
    every: bool,
    limit: int | None,
    store: str | None,
    json: bool,
) -> None:
    statuses = [_status(text) for text in status]
    empty = {"v": 1, "workloads": []} if json else None
    with empty_as(empty), open_known(store) as opened:
        found = [
            (
                one,
                coverage_of(opened.runs(one.workload.id), one.configs),
                _sorted(opened.trials(one.workload.id, all=every), statuses),
            )
            for one in (chosen(opened, name) if name else chosen(opened, None)[:1])
        ]
    if json:
        print_json(
            {
                "v": 1,
                "workloads": [
                    {
                        "workload": one.workload.to_json(),
                        "coverage": None if coverage is None else coverage.to_json(),
                        "pick": None if one.best is None else one.best.config.id,
                        "trials": [trial.to_json() for trial in _limited(tried, limit)],
                    }
                    for one, coverage, tried in found
                ],
            }
        )
        return
    for index, (one, coverage, tried) in enumerate(found):
        lines = _listing(one, coverage, tried, SHOWN if limit is None else limit)
        print_lines(["", *lines] if index else lines)


def _status(text: str) -> Status:
    try:
        return Status(text.lower())
    except ValueError:
        raise UsageError(f"unknown status '{text}'{did_you_mean(text, Status)}") from None


def _sorted(found: Sequence[Trial], statuses: Sequence[Status]) -> list[Trial]:
    """Measured ones by median, the rest after them in the order of the closed set."""
    order = list(Status)
    wanted = [trial for trial in found if not statuses or trial.status in statuses]

    def place(trial: Trial) -> tuple[bool, float, int]:
        measured = trial.status.measured and trial.median_ns is not None
        return not measured, trial.median_ns or 0.0 if measured else 0.0, order.index(trial.status)

    return sorted(wanted, key=place)


def _limited(tried: Sequence[Trial], limit: int | None) -> list[Trial]:
    """At most `limit` of either kind: a long list of slow configs must not hide the failures."""
    measured = [trial for trial in tried if trial.status.measured]
    failed = [trial for trial in tried if trial.status.failed]
    return measured[: limit or None] + failed[: limit or None]


def _listing(
    one: WorkloadSummary, coverage: Coverage | None, tried: Sequence[Trial], limit: int
) -> list[str]:
    workload, pick = one.workload, None if one.best is None else one.best.config
    configs = count_text(len({trial.config for trial in tried}), "config")
    lines = [*wrap(str(workload), page(), indent=2), f"id {workload.id}, {configs}"]
    lines += [f"source {workload.origin.places[0]}"] if workload.origin.places else []
    for line in () if coverage is None else coverage.lines:
        lines += wrap(line, page(), indent=2)
    shown = _limited(tried, limit)
    measured = [trial for trial in shown if trial.status.measured]
    failed = [trial for trial in shown if trial.status.failed]
    if measured:
        lines += ["", *_measured_table(measured, pick, columns())]
        if pick is not None and measured[0].config != pick:
            lines += ["", *wrap(_why_slower(pick, tried, coverage), page(), indent=2)]
    if failed:
        lines += ["", *_failed_table(failed, columns())]
    if not shown:
        lines += ["", "no trials"]
    more = len(tried) - len(shown)
    return [*lines, f"and {count_text(more, 'more trial')} (--limit 0)"] if more else lines


def _why_slower(pick: Config, tried: Sequence[Trial], coverage: Coverage | None) -> str:
    """Where the first row is not the pick."""
    how = "medians are of different moments, and the pick was not beaten side by side"
    if coverage is not None and coverage.provisional:
        how = "medians are of different moments, and there was no time to compare side by side"
    elif not any(trial.config == pick for trial in tried):
        how = "it is not among the trials shown"
    return f"the pick is [{pick}]: {how}"


def _measured_table(measured: Sequence[Trial], pick: Config | None, width: int) -> list[str]:
    fastest = measured[0].median_ns
    layout = [
        right("median"),
        Column("of fastest", align="right", optional=True),
        Column("samples", align="right", optional=True),
        Column("status", optional=True),
        flexible("config"),
    ]
    others = ("median ", "of fastest", "samples", "outraced")
    room = width - sum(len(title) + 2 for title in others)
    shared, names = told_by_values([trial.config for trial in measured], room)
    rows = [
        (
            ns_text(trial.median_ns),
            times_text(trial.median_ns / fastest) if fastest and trial.median_ns else "–",
            str(len(trial.timing.samples)) if trial.timing else "–",
            "pick" if trial.config == pick else str(trial.status),
            name,
        )
        for trial, name in zip(measured, names, strict=True)
    ]
    layout, cells, said = narrowed(layout, rows, width)
    told = "; ".join([*([f"config {shared}"] if shared else []), *said])
    return [*(wrap(told, width, indent=2) if told else []), *table(layout, cells, width)]


def _failed_table(failed: Sequence[Trial], width: int) -> list[str]:
    layout = [Column("status"), flexible("config"), flexible("error")]
    shared, names = told_by_values([trial.config for trial in failed], width // 2)
    rows = [
        (str(trial.status), name, first_line(trial.error))
        for trial, name in zip(failed, names, strict=True)
    ]
    told = wrap(f"config {shared}", width, indent=2) if shared else []
    return [*told, *table(layout, rows, width)]
