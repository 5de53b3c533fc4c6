"""Modes that fail on the model: what fails, and the smallest part of the model that shows it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whet.core.status import Status
from whet.doctor.finding import Finding, Line, Remedy
from whet.doctor.modes.second import run_again
from whet.doctor.modes.sources import Again, SubjectSource
from whet.doctor.modes.variants import EAGER
from whet.doctor.modes.verdict import TrialOfModes

_FAILS_IN = {
    "eager": "Dynamo",
    "aot_eager": "AOTAutograd",
    "aot_eager_decomp_partition": "the decomposition of operations",
    "": "Inductor",
}


def failure_findings(
    trial: TrialOfModes,
    place: Line,
    shrunk: Callable[[str], Mapping[str, Any]] = lambda mode: {},
) -> list[Finding]:
    """One for each way to fail, however many modes fail that way. `shrunk` is asked for a mode's
    `smallest_failure`."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for one in trial.modes:
        if one.problem and one.mode != EAGER:
            grouped.setdefault((one.status, _short(one.problem)), []).append(one.mode)
    return [
        _finding(modes, problem, shrunk(modes[0]) if status == Status.RUN_ERROR else {}, place)
        for (status, problem), modes in grouped.items()
    ]


def shrunk_by(
    source: SubjectSource, progress: Callable[[str], None]
) -> Callable[[str], Mapping[str, Any]]:
    def shrunk(mode: str) -> Mapping[str, Any]:
        progress(f"looking for the smallest part of the model on which {mode} fails")
        with tempfile.TemporaryDirectory(prefix="whet-doctor-") as caches:
            return run_again(Again(source, caches, mode, failing=True))

    return shrunk


def _short(problem: str) -> str:
    """Without the name of a generated file, which differs from mode to mode."""
    return problem.partition(" (in ")[0]


def _finding(modes: Sequence[str], problem: str, told: Mapping[str, Any], place: Line) -> Finding:
    fail = "fails" if len(modes) == 1 else "fail"
    evidence = f"{' and '.join(modes)} {fail}: {problem}"
    if told.get("everywhere"):
        evidence += "; so does x + 1, so that the cause is not in the model"
        remedy = Remedy("mend the installation: torch, and the compiler that Inductor calls")
        return Finding("failing-mode", evidence, Line(), (remedy,))
    repro = str(told.get("repro", ""))
    remedy = Remedy(f"report it to pytorch with {'this program' if repro else 'the model'}")
    if told.get("layer"):
        evidence += f"; the smallest part that fails alone is the layer '{told['layer']}'"
    if "layer" in told:
        evidence += f"; it fails in {_FAILS_IN[told.get('early_end', '')]}"
        place = Line(told["file"], told["line"], told["code"])
    if told.get("without"):
        text = f"keep '{told['layer']}' out of the compiler with torch.compiler.disable"
        remedy = Remedy(text, "tried: the model then compiles", works=True)
    return Finding("failing-mode", evidence, place, (remedy,), repro=repro)
