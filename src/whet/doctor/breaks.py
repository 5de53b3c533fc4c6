"""Graph breaks: where, why, and which settings of torch remove them from this very model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from whet.doctor import dynamo
from whet.doctor.dynamo import Break, Captured
from whet.doctor.finding import Finding, Line, Remedy
from whet.doctor.isolate import left_out_layers
from whet.doctor.subject import Patient

_REWRITES = {
    "Data-dependent branching": "compute both sides and select with torch.where(condition, a, b), "
    "or use torch.cond(condition, true_fn, false_fn, operands)",
    "Attempted to call function marked as skipped": "move the call out of the model, or wrap it in "
    "a custom operator (torch.library.custom_op)",
    "Tensor.tolist() with non-integer tensor": "keep the values in a tensor; copying them to the "
    "host waits for the device as well",
}

_SETTING = re.compile(r"torch\._dynamo\.(?:config\.)?(\w+) ?= ?True")

# What torch says of nearly every break and helps nobody.
_IDLE_HINTS = (
    "Please report an issue to PyTorch",
    "It may be possible to write Dynamo tracing",
    "may have been caused by an earlier graph break",
)


@dataclass(frozen=True)
class _Knob:
    """A setting of `torch._dynamo.config`, tried where a break mentions one of `words`."""

    text: str
    values: Mapping[str, Any]
    words: tuple[str, ...]

    def fits(self, one: Break) -> bool:
        said = f"{one.kind} {one.explanation} {' '.join(one.hints)}"
        return any(word in said for word in self.words)


_SETTINGS = (
    _Knob(
        "set torch._dynamo.config.capture_scalar_outputs = True",
        {"capture_scalar_outputs": True},
        ("capture_scalar_outputs",),
    ),
    _Knob(
        "set torch._dynamo.config.capture_dynamic_output_shape_ops = True",
        {"capture_dynamic_output_shape_ops": True},
        ("capture_dynamic_output_shape_ops",),
    ),
    _Knob(
        "torch._dynamo.config.reorderable_logging_functions.add(print); the text is then printed "
        "after the graph has run",
        {"reorderable_logging_functions": {print}},
        ("`print`",),
    ),
)


def break_findings(subject: Patient, captured: Captured) -> list[Finding]:
    """One finding for each line and kind of break."""
    grouped: dict[tuple[str, Line], list[Break]] = {}
    for one in captured.breaks:
        grouped.setdefault((one.kind, one.place), []).append(one)
    isolated = left_out_layers(subject, captured)
    findings = [
        _finding(subject, captured, same[0], place, len(same))
        for (_, place), same in grouped.items()
    ]
    return [
        replace(one, remedies=(*one.remedies, isolated[one.place]))
        if one.place in isolated
        else one
        for one in findings
    ]


def _finding(subject: Patient, captured: Captured, one: Break, place: Line, count: int) -> Finding:
    knobs = [setting for setting in _SETTINGS if setting.fits(one)] + _hinted(one)
    tried = [_tried(subject, setting, captured, one) for setting in knobs]
    helpful = [remedy for remedy in tried if remedy is not None]
    remedies = [*helpful, *_rewrites(one)]
    if not remedies:
        known = {name for setting in knobs for name in setting.values}
        useful = [
            hint for hint in one.hints if not any(idle in hint for idle in (*_IDLE_HINTS, *known))
        ]
        remedies = [Remedy(hint) for hint in useful[:2]]
    remedies = remedies or [Remedy("move the line out of the compiled model")]
    evidence = one.kind if not one.explanation else f"{one.kind}: {one.explanation}"
    name = "graph-break" if captured.graphs else "not-compiled"
    return Finding(name, evidence, place, tuple(remedies), one.code, count)


def _hinted(one: Break) -> list[_Knob]:
    """Settings in torch's own hints that are not among ours."""
    names = {name for hint in one.hints for name in _SETTING.findall(hint)}
    ours = {name for setting in _SETTINGS for name in setting.values}
    return [
        _Knob(f"set torch._dynamo.config.{name} = True", {name: True}, ())
        for name in sorted(names - ours)
    ]


def _rewrites(one: Break) -> list[Remedy]:
    if "`print`" in one.explanation:
        return [Remedy("print only outside of the compiler: if not torch.compiler.is_compiling()")]
    if one.place.code.startswith("assert "):
        return [Remedy("check it on the device: torch._assert_async(condition, message)")]
    return [Remedy(_REWRITES[one.kind])] if one.kind in _REWRITES else []


def _tried(subject: Patient, setting: _Knob, before: Captured, one: Break) -> Remedy | None:
    """The model is traced again under the setting; None where that does not help."""
    try:
        after = dynamo.capture(subject, subject.calls[0], setting.values)
    except Exception:
        return None
    here = (one.kind, one.place)
    gone = all((other.kind, other.place) != here for other in after.breaks)
    if not gone or len(after.breaks) >= len(before.breaks):
        return None
    counts = f"{len(before.breaks)} → {len(after.breaks)} graph breaks"
    return Remedy(setting.text, f"tried: {counts}", works=True)
