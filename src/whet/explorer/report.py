"""`whet report`: the page with its data in one file that needs no server and no network."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from whet.core.errors import UsageError
from whet.core.files import write_whole
from whet.core.intermediate import FACT
from whet.core.trial import Trial
from whet.explorer.bundling import page
from whet.explorer.columns import LONGEST_ERROR
from whet.explorer.details import trial_json
from whet.explorer.frontiers import Knobs, frontier_json
from whet.explorer.importance import importance
from whet.explorer.library import Library
from whet.explorer.runs import runs_json, timeline_json
from whet.explorer.searching import run_json, simulated_json, strategies_json
from whet.explorer.subject import AbsentError, Subject

Done = Callable[[int, int], None]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
# Of a report's workloads so many are simulated on: it takes seconds each.
SIMULATED = 3
SIMULATED_SEARCHES = ("grid", "random", "gp", "auto")
SEARCH_BUDGET = 100
SMALL_SPACE = 1_000
FRONTIER_RUNS = 8
# A report is for looking at, and a browser reads it in one go.
MOST_TRIALS = 200_000
MOST_DETAILED = 50_000
MOST_SPANS = 20_000
# Characters of intermediate code.
MOST_CODE = 4_000_000

# A trial of which some was kept, and its row.
Coded = tuple[Subject, int, Trial]


def write_report(
    library: Library,
    path: Path,
    subjects: Sequence[Subject] | None = None,
    done: Done | None = None,
) -> int:
    """Puts the file in place as a whole; how many bytes it has."""
    chosen = library.subjects() if subjects is None else list(subjects)
    data = report_data(library, chosen, done)
    names = sorted({subject.workload.kernel for subject in chosen})
    title = f"whet report: {', '.join(names[:3])}{', …' if len(names) > 3 else ''}"
    body = page(title, packed(data)).encode(errors="replace")
    try:
        write_whole(path, body)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    return len(body)


def packed(data: dict[str, Any]) -> str:
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def report_data(
    library: Library, subjects: Sequence[Subject], done: Done | None = None
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "about": {**library.about(), "live": False, "report": True},
        "strategies": strategies_json(),
        **{part: {} for part in ("columns", "runs", "importance", "timelines", "trials")},
        **{part: {} for part in ("searches", "frontier", "ir")},
    }
    left = MOST_DETAILED
    coded: list[Coded] = []
    for number, subject in enumerate(subjects):
        left -= _add_workload(data, subject, left, coded)
        if number < SIMULATED:
            _add_simulated(data, subject)
        if done is not None:
            done(number + 1, len(subjects))
    _add_code(data, coded)
    # After the columns, which know more of each workload.
    wanted = {subject.id for subject in subjects}
    # A model's journey is a page of its own.
    data["workloads"] = [
        {**line, "journey": False} for line in library.summaries() if line["id"] in wanted
    ]
    return data


def _add_workload(data: dict[str, Any], subject: Subject, detailed: int, coded: list[Coded]) -> int:
    reading = subject.read()
    rows = reading.columns.rows
    if rows > MOST_TRIALS:
        raise UsageError(
            f"{subject.workload.kernel} has {rows:,} trials; a report holds up to {MOST_TRIALS:,} "
            "of a workload; look at it with 'whet explore'"
        )
    data["columns"][subject.id] = _columns(subject)
    data["importance"][subject.id] = importance(reading.columns)
    runs = subject.runs()
    data["runs"][subject.id] = runs_json(subject)
    for run in runs:
        data["searches"][f"{subject.id}|run|{run.id}"] = run_json(subject, run.id)
        timeline = timeline_json(subject, run.id)
        if len(timeline["spans"]) <= MOST_SPANS:
            data["timelines"][run.id] = timeline
    if rows <= detailed:
        # What a store got since its columns were read has no row.
        trials = [*enumerate(subject.all_trials()[:rows])]
        data["trials"][subject.id] = {
            str(row): _compact(trial_json(subject, row, trial), trial)
            for row, trial in trials
            if trial is not None
        }
        coded += [(subject, row, one) for row, one in trials if one and FACT in one.facts]
        return rows
    return 0


def _add_code(data: dict[str, Any], coded: Sequence[Coded]) -> None:
    """As much as there is room for; the best config of each workload comes first."""
    bests = {id: one["header"]["best_row"] for id, one in data["columns"].items()}
    room = MOST_CODE
    for subject, row, trial in sorted(coded, key=lambda one: one[1] != bests[one[0].id]):
        stages = subject.stages(trial)
        size = sum(map(len, stages.values()))
        if size > room:
            continue
        room -= size
        data["trials"][subject.id][str(row)]["ir"] = [*stages]
        for stage, text in stages.items():
            data["ir"][f"{subject.id}|{row}|{stage}"] = text


def _columns(subject: Subject) -> dict[str, Any]:
    """The header apart from the arrays, which go as base64."""
    whole = b"".join(subject.encoded(0))
    length = int.from_bytes(whole[:4], "little")
    start = -(-(4 + length) // 8) * 8
    return {
        "header": json.loads(whole[4 : 4 + length]),
        "body": base64.b64encode(whole[start:]).decode(),
    }


def _compact(told: dict[str, Any], trial: Trial) -> dict[str, Any]:
    """Samples as quantiles, five digits of everything, and no more of an error than the columns
    have, unless there is more to say."""
    samples = () if trial.timing is None else trial.timing.samples
    quantiles = _quantiles(sorted(samples)) if samples else []
    kept = {name: value for name, value in told.items() if name not in ("id", "created")}
    kept["samples"] = []
    kept["quantiles"] = quantiles
    kept["error"] = told["error"][: 4 * LONGEST_ERROR]
    return dict(_rounded(kept))


def _quantiles(ordered: Sequence[float]) -> list[float]:
    """Between two samples in proportion, as NumPy has it, which takes ten times as long for few."""
    found = []
    for share in QUANTILES:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        found.append(ordered[low] + (place - low) * (ordered[high] - ordered[low]))
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _add_simulated(data: dict[str, Any], subject: Subject) -> None:
    for strategy in SIMULATED_SEARCHES:
        key = f"{subject.id}|{strategy}|0|{SEARCH_BUDGET}"
        data["searches"][key] = _or_absent(
            partial(simulated_json, subject, strategy, 0, SEARCH_BUDGET)
        )
    data["frontier"][subject.id] = _or_absent(partial(_frontier, subject))


def _frontier(subject: Subject) -> dict[str, Any]:
    """With a strategy's own points only where its model is quick."""
    small = len(subject.recorded().table.configs) <= SMALL_SPACE
    searches = ("auto",) if small else ()
    return frontier_json(subject, Knobs(runs=FRONTIER_RUNS, searches=searches))


def _or_absent(asked: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return asked()
    except AbsentError as error:
        return {"absent": str(error)}
