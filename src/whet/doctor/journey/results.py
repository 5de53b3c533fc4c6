"""What the diagnosis measured, as sections of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.doctor.finding import NAMES
from whet.doctor.journey import html

if TYPE_CHECKING:
    from whet.doctor.diagnosis import Diagnosis
    from whet.doctor.modes.mode_trial import ModeTrial

_CHOICES = 12


def tuning_section(done: Diagnosis) -> str:
    modes = () if done.trial is None else done.trial.modes
    body = []
    seen = set()
    for mode in modes:
        for table in mode.autotune:
            if (table.name, table.shapes) in seen:
                continue
            seen.add((table.name, table.shapes))
            rows = [
                (name, f"{ms:.4g} ms", _again(table.careful_ms.get(name)))
                for name, ms in table.choices[:_CHOICES]
            ]
            more = len(table.choices) - len(rows)
            title = f"{table.name} of {table.shapes}, in {mode.mode}"
            told = html.table(("choice", "autotuner", "timed again"), rows, (1, 2))
            left = html.paragraph(f"and {more} slower ones") if more > 0 else ""
            body.append(html.folded(title, told + left))
    if not body:
        why = next(
            (one for one in done.examination.conditions if "does not tune" in one),
            "no mode tuned an operation here" if modes else "not timed",
        )
        return html.section("tuning", "Autotuning", why)
    return html.section("tuning", "Autotuning", "torch's own times of each choice", *body)


def _again(ms: float | None) -> str:
    return "" if ms is None else f"{ms:.4g} ms"


def modes_section(done: Diagnosis) -> str:
    if done.trial is None:
        return html.section("modes", "Modes", "not timed")
    head = (
        "mode",
        "a call",
        "× eager",
        "first call",
        "warm",
        "recording",
        "device",
        "launches",
        "error",
    )
    rows = [_row(one) for one in done.trial.modes]
    notes = [html.paragraph(f"{note}.") for note in done.examination.notes]
    text = done.trial.verdict.text if done.trial.verdict is not None else "no verdict"
    return html.section("modes", "Modes", text, html.table(head, rows, range(1, 9)), *notes)


def _row(one: ModeTrial) -> tuple[str, ...]:
    step, warm = one.step, one.warm

    def shown(value: float | None, unit: str, scale: float = 1.0) -> str:
        return "" if value is None else f"{value / scale:.4g}{unit}"

    return (
        one.mode,
        shown(one.median_ns, " ms", 1e6) or one.status,
        "" if one.beside_eager is None else f"{one.beside_eager[1]:.2f}",
        shown(one.first_call_s, " s"),
        shown(None if warm is None else warm.first_call_s, " s"),
        shown(one.recording_s, " s"),
        shown(None if step is None else step.device_ns, " ms", 1e6),
        shown(None if step is None else step.launches, ""),
        shown(one.error, ""),
    )


def findings_section(done: Diagnosis) -> str:
    found = done.examination.findings
    if not found:
        return html.section("findings", "Findings", "none")
    body = []
    for one in found:
        where = f" {one.place}" if one.place.file else ""
        body.append(f"<h3>{one.name}: {NAMES.get(one.name, '')}</h3>")
        body.append(html.paragraph(f"{one.evidence}{where}"))
        body += [html.code(text) for text in (one.place.code, one.repro) if text]
        body += [
            html.paragraph(f"→ {remedy.text} ({remedy.tried or 'not tried'})")
            for remedy in one.remedies
        ]
    left = [html.paragraph(line) for line in done.examination.left_out]
    return html.section("findings", "Findings", "", *body, *left)
