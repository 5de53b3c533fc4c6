"""`torch.compiler.disable` where it pays: a layer that breaks the graph several times, left out."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from whet.doctor import dynamo
from whet.doctor.dynamo import Captured
from whet.doctor.finding import Line, Remedy
from whet.doctor.subject import Patient

# Leaving a layer out breaks the graph once.
WORTH_FROM = 2


def left_out_layers(subject: Patient, captured: Captured) -> dict[Line, Remedy]:
    """For the breaks in one layer's own code: what came of compiling the model without it. Only
    where fewer breaks were left."""
    found: dict[Line, Remedy] = {}
    for name, places in _breaking_layers(subject, captured):
        remedy = _tried(subject, name, captured)
        if remedy is not None:
            found.update(dict.fromkeys(places, remedy))
    return found


def _breaking_layers(subject: Patient, captured: Captured) -> Iterator[tuple[str, list[Line]]]:
    modules = getattr(subject.model, "named_modules", None)
    for name, layer in modules() if callable(modules) else ():
        if not name:
            continue
        file, first, last = _span(layer)
        places = [
            one.place
            for one in captured.breaks
            if one.place.file == file and first <= one.place.line <= last
        ]
        if len(places) >= WORTH_FROM:
            yield name, places


def _span(layer: Any) -> tuple[str, int, int]:
    """The lines of its forward."""
    try:
        lines, first = inspect.getsourcelines(type(layer).forward)
        file = inspect.getsourcefile(type(layer).forward) or ""
    except (OSError, TypeError):
        return "", 0, -1
    return file, first, first + len(lines) - 1


def _tried(subject: Patient, name: str, before: Captured) -> Remedy | None:
    import torch

    model, _ = dynamo.fresh(subject, subject.calls[0])
    if model is subject.model:
        return None
    layer = model.get_submodule(name)  # type: ignore[attr-defined]
    layer.forward = torch.compiler.disable(layer.forward)
    try:
        after = dynamo.capture(replace(subject, model=model), subject.calls[0])
    except Exception:
        return None
    if len(after.breaks) >= len(before.breaks):
        return None
    counts = f"{len(before.breaks)} → {len(after.breaks)} graph breaks"
    text = f"leave the layer '{name}' out: torch.compiler.disable on its forward"
    return Remedy(text, f"tried: {counts}", works=True)
