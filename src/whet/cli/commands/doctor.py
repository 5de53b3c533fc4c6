"""`whet doctor`: why torch.compile is not faster, and which mode to use."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.locate import file_of, name_in
from whet.cli.arguments.options import JsonOption, QuietOption, StoreOption, argument, option
from whet.cli.terminal.output import (
    Column,
    bytes_text,
    count_text,
    ns_text,
    page,
    print_json,
    print_lines,
    right,
    say,
    seconds_text,
    table,
    wrap,
)
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.doctor.finding import Diagnosis, Finding, Line, Remedy
    from whet.doctor.modes.verdict import ModeTrial, TrialOfModes


def doctor(
    subject: Annotated[
        str,
        argument(
            "FILE.py:FUNCTION",
            "A function without arguments that returns a model and inputs: a tensor, a tuple "
            "of arguments or a dict of keywords, or a list of these for several calls.",
        ),
    ],
    findings: Annotated[
        bool, option("--findings", "Look for findings only; time no modes.")
    ] = False,
    modes: Annotated[
        str | None, option("--modes M,M", "The modes to time beside eager (default: all four).")
    ] = None,
    full: Annotated[
        bool,
        option(
            "--full",
            "Time the knobs behind the modes as well, one at a time: backends of matrix "
            "products, coordinate descent, freezing, dynamic shapes.",
        ),
    ] = False,
    training: Annotated[
        bool, option("--training", "Time the forward and the backward pass, not inference.")
    ] = False,
    check: Annotated[
        str | None,
        option("--check BUDGET.toml", "Exit with 1 if the model exceeds a limit in this file."),
    ] = None,
    report: Annotated[
        str | None,
        option(
            "--report FILE.html", "Write a page that follows the model from Python to machine code."
        ),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find out why torch.compile is not faster.

    Looks for graph breaks, recompilations, upcasts, copies to the host and inputs that are changed
    in place, and tries remedies on the model. Then times eager and the modes of torch.compile, each
    in a process of its own with empty caches, and recommends one; not to compile is a possible
    recommendation. Timings are stored: --store :memory: measures again.

    Examples:
      whet doctor model.py:make_model             findings, and every mode timed
      whet doctor model.py:make_model --findings  findings only: seconds
      whet doctor model.py:make_model --full      the knobs behind the modes, too
      whet doctor model.py:make_model --training  a step is forward and backward
      whet doctor model.py:make_model --modes default,max-autotune
      whet doctor model.py:make_model --check budget.toml
      whet doctor model.py:make_model --report journey.html
    """
    from whet.doctor.budget import over_budget, read_budget

    limits = None if check is None else read_budget(Path(check))
    wanted = () if findings else _modes(modes)
    if limits is not None and modes is None and not limits.needs_modes:
        wanted = ()
    with redirect_stdout(sys.stderr):  # what the file prints is no result of ours
        say = _silent if quiet else _Progress()
        done = _examined(
            subject,
            training=training,
            modes=wanted,
            full=full,
            store=store,
            report=report,
            progress=say,
        )
    exceeded = [] if limits is None else over_budget(done, limits)
    if json:
        print_json({**done.to_json(), "over_budget": exceeded})
    else:
        print_lines(report_lines(done))
        if limits is not None:
            print_lines(over_budget_lines(exceeded))
    written = report is not None and not done.interrupted and not done.problem
    if written and not quiet:
        print(f"wrote {report}", file=sys.stderr)
    if done.interrupted:
        raise typer.Exit(130)
    if exceeded or done.problem:
        raise typer.Exit(1)


def _modes(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _examined(text: str, **wanted: Any) -> Diagnosis:
    from whet.doctor.checkup import doctor_file

    path, name = file_of(text), name_in(text)
    if name is None:
        raise UsageError(f"'{text}' does not say what makes the model; use FILE.py:FUNCTION")
    return doctor_file(path, name, **wanted)


def _silent(text: str) -> None:
    pass


class _Progress:
    """A line for each thing that begins or ends, with the time since the command began."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        spent = f"{time.monotonic() - self._began:.1f}s"
        say(f"{spent:>7}  {text}")


_LAYOUT = (
    Column("mode"),
    right("a call"),
    right("99 %"),
    right("× eager"),
    right("first call"),
    right("warm"),
    right("recording"),
)

_STEP_LAYOUT = (
    Column("mode"),
    right("device"),
    right("host"),
    right("launches"),
    right("memory"),
    right("error"),
)

_KERNELS_SHOWN = 5


def report_lines(done: Diagnosis) -> list[str]:
    """The verdict first, then the modes, then the findings."""
    looked = done.examination
    lines = wrap(_heading(done), page(), indent=2)
    if done.problem:
        lines += ["", *wrap(f"The model cannot be made: {done.problem}", page(), indent=2)]
    if done.trial is not None:
        lines += ["", *_trial(done.trial)]
        for note in (*looked.conditions, *looked.notes):
            lines += wrap(f"Note: {note}.", page(), indent=2)
    counted = count_text(len(looked.findings), "finding") if looked.findings else "no findings"
    lines += ["", f"{counted} so far" if looked.interrupted else counted]
    for number, finding in enumerate(looked.findings, 1):
        lines += ["", *_finding(number, finding)]
    for note in looked.left_out:
        lines += ["", *wrap(note, page(), indent=2)]
    return lines


def _heading(done: Diagnosis) -> str:
    looked = done.examination
    said = f"{done.name}, torch {done.torch}"
    if looked.graphs is not None and looked.operations is not None:
        graphs, operations = looked.graphs, looked.operations
        said += f": {count_text(graphs, 'graph')}, {count_text(operations, 'operation')}"
    return said


def _trial(trial: TrialOfModes) -> list[str]:
    lines = [] if trial.verdict is None else [*wrap(trial.verdict.text, page(), indent=2), ""]
    timed = [one for one in trial.modes if one.median_ns is not None]
    if timed:
        lines += table(_LAYOUT, [_row(one) for one in timed], page())
        lines += ["", *_steps(timed)]
        where = [*_kernels(trial), *_layers(timed)]
        lines += [*where, ""] if where else []
    notes = [
        f"{one.mode} could not be timed: see the findings." for one in trial.modes if one.problem
    ]
    if trial.interrupted:
        later = "the verdict may change" if trial.verdict else "there is a verdict"
        notes.append(f"The trial was interrupted: {later} when all modes are timed.")
        if trial.missing:
            notes.append(f"Not timed: {', '.join(trial.missing)}.")
    if trial.source == "stored":
        notes.append("Timings are from the store; --store :memory: measures again.")
    for note in notes:
        lines += wrap(note, page(), indent=2)
    return lines


def _row(one: ModeTrial) -> tuple[str, ...]:
    return (
        one.mode,
        ns_text(one.median_ns),
        _spread(one),
        "–" if one.beside_eager is None else f"{one.beside_eager[1]:.2f}",
        "–" if one.first_call_s is None else seconds_text(one.first_call_s),
        "–" if one.warm is None else seconds_text(one.warm.first_call_s),
        _recording(one),
    )


def _steps(timed: Sequence[ModeTrial]) -> list[str]:
    """Without the columns of which nothing is known: those of the device on a CPU."""
    rows = [_step_row(one) for one in timed]
    known = [at for at in range(len(_STEP_LAYOUT)) if any(row[at] != "–" for row in rows)]
    layout = tuple(_STEP_LAYOUT[at] for at in known)
    return table(layout, [tuple(row[at] for at in known) for row in rows], page())


def _step_row(one: ModeTrial) -> tuple[str, ...]:
    step = one.step
    return (
        one.mode,
        "–" if step is None or step.device_ns is None else ns_text(step.device_ns),
        "–" if step is None or step.host_ns is None else ns_text(step.host_ns),
        "–" if step is None or step.launches is None else f"{step.launches:.0f}",
        "–" if one.peak_bytes is None else bytes_text(one.peak_bytes),
        "–" if one.error is None else f"{one.error:.0e}",
    )


def _kernels(trial: TrialOfModes) -> list[str]:
    """Where the recommended mode's time goes."""
    chosen = "" if trial.verdict is None else trial.verdict.mode
    mode = next((one for one in trial.modes if one.mode == chosen), None)
    if mode is None or mode.step is None or not mode.step.kernels:
        return []
    shown = mode.step.kernels[:_KERNELS_SHOWN]
    layout = (Column(f"kernels of {chosen}"), right("calls"), right("a step"))
    rows = [(_cut(one.name), f"{one.calls:.3g}", ns_text(one.ns)) for one in shown]
    return ["", *table(layout, rows, page())]


def _layers(timed: Sequence[ModeTrial]) -> list[str]:
    """Where eager's time goes, by the model's own parts."""
    found = next((one.step.layers for one in timed if one.step is not None and one.step.layers), ())
    if not found:
        return []
    layout = (Column("layers, in eager"), right("a step"))
    rows = [(_cut(where), ns_text(ns)) for where, ns in found[:_KERNELS_SHOWN]]
    return ["", *table(layout, rows, page())]


def _cut(name: str) -> str:
    return name if len(name) <= 52 else f"{name[:51]}…"


def _recording(one: ModeTrial) -> str:
    """A dash where the second and third call took no longer than others may."""
    if one.recording_s is None or one.recording_s * 1e9 < (one.median_ns or 0.0):
        return "–"
    return seconds_text(one.recording_s)


def _spread(one: ModeTrial) -> str:
    """Half the interval of the median, in percent of it."""
    if one.interval_ns is None or not one.median_ns:
        return "–"
    low, high = one.interval_ns
    return f"±{math.ceil(50 * (high - low) / one.median_ns)} %"


def _finding(number: int, finding: Finding) -> list[str]:
    from whet.doctor.finding import NAMES

    code = f" ({finding.code})" if finding.code else ""
    lines = [f"{number}. {finding.name}{code}: {NAMES.get(finding.name, '')}".rstrip(": ")]
    if finding.place.file:
        lines += [f"   {_short(finding.place)}"]
        if finding.place.code:
            lines += [f"       {finding.place.code}"[: page()]]
    lines += _indented(finding.evidence)
    if finding.repro:
        lines += [f"       {finding.repro}"]
    for remedy in finding.remedies:
        lines += _indented(f"→ {_remedy(remedy)}", hanging=2)
    return lines


def _short(place: Line) -> str:
    """Relative to the current folder where that is shorter."""
    near = os.path.relpath(place.file)
    file = near if len(near) < len(place.file) else place.file
    return f"{file}:{place.line}" if place.line else file


def _remedy(remedy: Remedy) -> str:
    return f"{remedy.text} ({remedy.tried})" if remedy.tried else f"{remedy.text} (not tried)"


def _indented(text: str, hanging: int = 0) -> list[str]:
    return [f"   {line}" for line in wrap(text, page() - 3, indent=hanging)]


def over_budget_lines(exceeded: Sequence[str]) -> list[str]:
    if not exceeded:
        return ["", "within the budget"]
    return ["", "over the budget:", *(line for one in exceeded for line in _indented(one, 2))]
