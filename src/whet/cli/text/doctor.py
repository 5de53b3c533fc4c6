"""What `whet doctor` says of a model."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from whet.cli.terminal.output import (
    Column,
    bytes_text,
    count_text,
    ns_text,
    page,
    seconds_text,
    table,
    wrap,
)

if TYPE_CHECKING:
    from whet.doctor.checkup import Diagnosis
    from whet.doctor.finding import Finding, Place, Remedy
    from whet.doctor.modes.verdict import ModeTrial, TrialOfModes

_LAYOUT = (
    Column("mode"),
    Column("a call", align="right"),
    Column("95 %", align="right"),
    Column("first call", align="right"),
    Column("recording", align="right"),
    Column("error", align="right"),
)


def report(done: Diagnosis) -> list[str]:
    """The verdict first, then the modes, then the findings."""
    looked = done.examination
    lines = wrap(_heading(done), page(), indent=2)
    if done.problem:
        lines += ["", *wrap(f"The model cannot be made: {done.problem}", page(), indent=2)]
    if done.trial is not None:
        lines += ["", *_trial(done.trial)]
        for condition in looked.conditions:
            lines += wrap(f"Note: {condition}.", page(), indent=2)
    lines += ["", count_text(len(looked.findings), "finding") if looked.findings else "no findings"]
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
    for one in trial.modes:
        if one.problem:
            lines += wrap(f"{one.mode} {one.status}: {one.problem}", page(), indent=2)
    notes = [*_numerics(trial), *_misread(trial)]
    if trial.interrupted:
        notes.append("The trial was interrupted: the verdict may change when all modes are timed.")
    if trial.source == "stored":
        notes.append("Timings are from the store; --store :memory: measures again.")
    peak = max((one.peak_bytes or 0 for one in trial.modes), default=0)
    if peak:
        notes.append(f"At most {bytes_text(peak)} of memory was in use.")
    for note in notes:
        lines += wrap(note, page(), indent=2)
    return lines


def _row(one: ModeTrial) -> tuple[str, ...]:
    return (
        one.mode,
        ns_text(one.median_ns),
        _spread(one),
        "–" if one.first_call_s is None else seconds_text(one.first_call_s),
        _recording(one),
        "–" if one.error is None else f"{one.error:.0e}",
    )


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


def _numerics(trial: TrialOfModes) -> list[str]:
    far = [one for one in trial.modes if one.close_to_eager is False]
    if not far:
        return []
    worse = [one for one in far if (one.error or 0.0) > 2 * (one.eager_error or 0.0)]
    names = ", ".join(one.mode for one in far)
    said = f"Results of {names} differ from eager's by more than torch.testing.assert_close allows"
    if not worse:
        return [f"{said}; both are as far from float64."]
    return [f"{said}, and {', '.join(one.mode for one in worse)} is further from float64."]


def _misread(trial: TrialOfModes) -> list[str]:
    from whet.doctor.modes.verdict import TIMED_BY_HAND, misread_ns

    read = [(one.mode, ns) for one in trial.modes if (ns := misread_ns(one)) is not None]
    if not read:
        return []
    figures = ", ".join(f"{ns_text(ns)} for {mode}" for mode, ns in read)
    return [
        f"{TIMED_BY_HAND} calls after a single warm-up call would read {figures}: the second and "
        "third call are slow. Warm up with at least three calls."
    ]


def _finding(number: int, finding: Finding) -> list[str]:
    from whet.doctor.finding import NAMES

    code = f" ({finding.code})" if finding.code else ""
    lines = [f"{number}. {finding.name}{code}: {NAMES.get(finding.name, '')}".rstrip(": ")]
    if finding.place.file:
        lines += [f"   {_short(finding.place)}"]
        if finding.place.code:
            lines += [f"       {finding.place.code}"[: page()]]
    lines += _indented(finding.evidence)
    for remedy in finding.remedies:
        lines += _indented(f"→ {_remedy(remedy)}", hanging=2)
    return lines


def _short(place: Place) -> str:
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
