"""`whet cost`: where the time of a tuning went, what was saved, and when it has paid off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption, StoreOption
from whet.core.errors import UsageError, WhetError

if TYPE_CHECKING:
    from whet.core.run import Run
    from whet.core.timeline import Timeline
    from whet.engine.accounts.account import Tuning
    from whet.store import StoreReader, WorkloadSummary

EXAMPLES = """\b
Examples:
  whet cost                   the most recent run
  whet cost matmul            the latest run of every key of a kernel
  whet cost 3fa2 --top 30     one workload, its 30 most expensive configs
  whet cost 3fa2 --timeline t.json    a timeline for ui.perfetto.dev
  whet cost matmul --json | jq '.saved.racing'
"""

SHOWN = 10


def cost(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|ID",
            help="A kernel name, the name it was tuned under, FILE.py:NAME, or the start of a "
            "workload id (default: the last run).",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN_ID", help="A run id, or the start of one."),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            metavar="N",
            min=0,
            show_default=False,
            help=f"Show at most N configs and N keys; 0 shows all (default: {SHOWN}; all with "
            "--json).",
        ),
    ] = None,
    timeline: Annotated[
        str | None,
        typer.Option(
            "--timeline",
            metavar="FILE",
            help="Write a timeline for ui.perfetto.dev instead of the report.",
        ),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show where tuning time went, and what was saved."""
    from whet.cli.arguments.reading import NothingKnownError, open_known
    from whet.cli.terminal.output import page, print_json, print_lines
    from whet.cli.text.cost import account_lines
    from whet.engine.accounts.account import account

    try:
        with open_known(store) as opened:
            tunings, left_out = _chosen_tunings(opened, name, run)
            if timeline is not None:
                _write_timelines(Path(timeline), opened, tunings)
    except NothingKnownError:
        if json:
            print_json({"v": 1, "keys": []})
        raise
    if timeline is not None and not json:
        return
    told = account(tunings)
    if json:
        data = told.to_json()
        print_json({**data, **{name: data[name][: top or None] for name in ("keys", "configs")}})
        return
    lines = account_lines(told, tunings, SHOWN if top is None else top, page())
    print_lines(lines + _left_out_lines(left_out))


def _chosen_tunings(
    store: StoreReader, name: str | None, run_id: str | None
) -> tuple[list[Tuning], list[WorkloadSummary]]:
    """What to account for, the longest run first, and the workloads of the same name that are
    left out because they are of another version, device or toolchain. What was imported cost
    nothing here."""
    from whet.cli.arguments.reading import NothingKnownError, chosen
    from whet.interop.findings import is_foreign

    known = [one for one in chosen(store, name) if not is_foreign(one.workload)]
    if run_id is not None:
        return [_tuning(store, _run_named(store, known, run_id))], []
    runs = {one.workload.id: found for one in known if (found := _latest_run(store, one))}
    if not runs:
        what = f"no tuning run of {name}" if name else "no tuning run"
        raise NothingKnownError(f"{what} in {store.location}", store.location)
    if name is None:
        latest = max(runs.values(), key=lambda run: run.started + run.wall_s)
        return [_tuning(store, latest)], []
    working = [one for one in known if one.workload.id in runs]
    alike = [one for one in working if _version(one) == _version(working[0])]
    tunings = [_tuning(store, runs[one.workload.id]) for one in alike]
    tunings.sort(key=lambda tuning: -tuning.run.cost.wall_s)
    return tunings, [one for one in working if one not in alike]


def _latest_run(store: StoreReader, one: WorkloadSummary) -> Run | None:
    """The newest that wrote down its cost; else the newest that left a trial, killed as it was."""
    runs = store.runs(one.workload.id)
    for run in runs:
        if run.trials and run.cost.wall:
            return run
    left = {trial.run_id for trial in store.trials(one.workload.id, all=True)} if runs else set()
    return next((run for run in runs if run.id in left), None)


def _version(one: WorkloadSummary) -> tuple[Any, ...]:
    workload = one.workload
    return workload.kernel, workload.fingerprint, workload.device, workload.toolchain


def _run_named(store: StoreReader, known: Sequence[WorkloadSummary], run_id: str) -> Run:
    runs = [run for one in known for run in store.runs(one.workload.id)]
    found = [run for run in runs if run.id.startswith(run_id)] if run_id else []
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(run.id[:12] for run in found[:4])
        raise UsageError(f"--run {run_id} matches {len(found)} runs: {ids}; give more of the id")
    where = f" of {known[0].workload.kernel}" if len(known) == 1 else ""
    newest = max(runs, key=lambda run: run.started, default=None)
    hint = "there are none" if newest is None else f"the newest is {newest.id}"
    raise UsageError(f"no run{where} has an id starting with '{run_id}'; {hint}")


def _tuning(store: StoreReader, run: Run) -> Tuning:
    from whet.engine.accounts.account import Tuning

    return Tuning(run, tuple(store.trials(run.workload.id, all=True)), run.first)


def _left_out_lines(left_out: Sequence[WorkloadSummary]) -> list[str]:
    from whet.cli.arguments.reading import SHORT_ID
    from whet.cli.terminal.output import count_text, page, wrap

    if not left_out:
        return []
    ids = ", ".join(one.workload.id[:SHORT_ID] for one in left_out[:4])
    more = ", …" if len(left_out) > 4 else ""
    text = (
        f"not included: {count_text(len(left_out), 'workload')} for another version of the "
        f"kernel, device or toolchain (whet cost ID: {ids}{more})"
    )
    return ["", *wrap(text, page(), indent=2)]


def _write_timelines(path: Path, store: StoreReader, tunings: Sequence[Tuning]) -> None:
    import json
    import sys

    from whet.cli.terminal.output import count_text

    found: list[tuple[Tuning, Timeline]] = []
    for tuning in tunings:
        kept = store.timeline(tuning.run.id)
        if kept is not None:
            found.append((tuning, kept))
    if not found:
        runs = f"run {tunings[0].run.id} has" if len(tunings) == 1 else "none of the runs has"
        raise WhetError(
            f"{runs} no timeline: killed runs and runs by older versions of whet have none; "
            "tune again to get one"
        )
    try:
        path.write_text(json.dumps(_trace(found), ensure_ascii=False), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write the timeline to {path}: {error.strerror}") from None
    without = len(tunings) - len(found)
    missing = f"; {count_text(without, 'run')} without a timeline" if without else ""
    print(f"whet: wrote {path}; open it in https://ui.perfetto.dev{missing}", file=sys.stderr)


def _trace(found: Sequence[tuple[Tuning, Timeline]]) -> dict[str, Any]:
    """One process for each run, each beginning when it did."""
    from whet.cli.arguments.reading import SHORT_ID, problem_text

    began = min(tuning.run.started for tuning, _ in found)
    events: list[Any] = []
    in_order = sorted(found, key=lambda pair: pair[0].run.started)
    for number, (tuning, timeline) in enumerate(in_order, start=1):
        run = tuning.run
        trace = timeline.to_perfetto(
            {trial.config.id: str(trial.config) for trial in tuning.trials},
            process=f"{problem_text(run.workload)}, run {run.id[:SHORT_ID]}",
            number=number,
            offset_s=run.started - began,
        )
        events += trace["traceEvents"]
    return {"displayTimeUnit": "ms", "traceEvents": events}
