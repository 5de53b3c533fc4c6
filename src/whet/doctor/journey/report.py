"""Writes the report: gathers what torch makes of the model, and puts the page in place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from whet.core.errors import UsageError
from whet.core.files import write_whole
from whet.doctor.journey.gather import journey
from whet.doctor.modes.sources import SubjectSource
from whet.doctor.modes.variants import EAGER
from whet.doctor.subject import Patient, device_of
from whet.store import StoreReader
from whet.store.scanning import journey_file

if TYPE_CHECKING:
    from whet.doctor.diagnosis import Diagnosis

# On a GPU the second shows what CUDA graphs change.
_ON_GPU = ("max-autotune", "max-autotune-no-cudagraphs")
_ON_CPU = ("default",)


def write_report(
    done: Diagnosis,
    subject: Patient,
    source: SubjectSource,
    path: Path,
    progress: Callable[[str], None],
) -> str:
    """What it has written."""
    from whet.doctor.journey.page import page

    journeys = []
    for mode in followed(done, gpu=device_of(subject) is not None):
        progress(f"following {mode}: a new process writes everything down")
        journeys.append(journey(source, mode))
    text = page(done, journeys, _source(subject))
    try:
        write_whole(path, text.encode(errors="replace"))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    return text


def keep_report(
    text: str, store: StoreReader, workload_id: str, progress: Callable[[str], None]
) -> None:
    """Beside the store, where an explorer finds it."""
    path = None if store.read_only else journey_file(store, workload_id)
    if path is None:
        return
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, text.encode(errors="replace"))
    except OSError as error:
        progress(f"not kept for the explorer: {error}")


def followed(done: Diagnosis, gpu: bool) -> tuple[str, ...]:
    """The recommended mode first, where it compiles at all."""
    verdict = None if done.trial is None else done.trial.verdict
    chosen = () if verdict is None or verdict.mode == EAGER else (verdict.mode,)
    return tuple(dict.fromkeys((*chosen, *(_ON_GPU if gpu else _ON_CPU))))[: 2 if gpu else 1]


def _source(subject: Patient) -> str:
    kind = type(subject.model) if hasattr(subject.model, "parameters") else subject.model
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return repr(subject.model)
