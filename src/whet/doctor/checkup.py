"""`whet.doctor(model, inputs)`: the findings and the trial of modes, in one diagnosis."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whet.core.errors import TuningFailedError, UsageError, did_you_mean
from whet.core.event import Event, TrialFinished
from whet.core.trial import Trial
from whet.doctor.examine import examine
from whet.doctor.finding import Examination, Finding, Remedy
from whet.doctor.modes.loaded import EAGER
from whet.doctor.modes.sources import CHILD, MadeInFile, SubjectSource, save
from whet.doctor.modes.target import MODES, ModesTarget
from whet.doctor.modes.verdict import TrialOfModes, trial_of_modes
from whet.doctor.subject import Subject, device_of, subject_in, subject_of
from whet.doctor.written import environment_findings, written_findings

Progress = Callable[[str], None]

# A mode may compile for so long; a model is not a kernel.
FIRST_CALL_S = 1200.0


@dataclass(frozen=True)
class Diagnosis:
    """`trial` is None where modes were not to be timed, or could not; `problem` says why the model
    could not be made."""

    name: str
    place: str
    torch: str
    examination: Examination
    trial: TrialOfModes | None = None
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        looked = self.examination
        return {
            "v": 1,
            "name": self.name,
            "place": self.place,
            "torch": self.torch,
            "problem": self.problem,
            "graphs": looked.graphs,
            "operations": looked.operations,
            "findings": [finding.to_json() for finding in looked.findings],
            "left_out": list(looked.left_out),
            "conditions": list(looked.conditions),
            "trial": None if self.trial is None else self.trial.to_json(),
        }


def doctor(
    model: Any,
    inputs: Any,
    *,
    training: bool = False,
    modes: Sequence[str] | None = None,
    store: Any = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Examines a model and times the modes of `torch.compile` on it.

    `inputs` is a tensor, a tuple of arguments or a dict of keywords, for one call; a list of these
    is several calls whose inputs differ. `modes` are those to time, none where it is empty.
    `training` makes a call a forward and a backward pass. `store` is where timings are kept, as in
    `whet.tune`.
    """
    if os.environ.get(CHILD):
        raise UsageError(
            "whet.doctor was called again in the process that times a mode; put the call under "
            "if __name__ == '__main__':"
        )
    require_torch()
    wanted = checked_modes(MODES if modes is None else modes)
    subject = subject_of(model, inputs, training=training)
    with tempfile.TemporaryDirectory(prefix="whet-doctor-") as folder:
        return _diagnose(
            subject, lambda: save(subject, Path(folder)), wanted, store, progress or _silent
        )


def doctor_file(
    path: Path,
    name: str,
    *,
    training: bool = False,
    modes: Sequence[str] | None = None,
    store: Any = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """The same for the model that `FILE.py:NAME` makes. A call of torch.compile that torch refuses
    is a finding, though the model then cannot be made."""
    require_torch()
    wanted = checked_modes(MODES if modes is None else modes)
    try:
        subject = subject_in(path, name, training=training)
    except UsageError as error:
        written = written_findings(str(path))
        if not written:
            raise
        looked = Examination((*written, *environment_findings()))
        return Diagnosis(name, str(path), _torch_version(), looked, problem=str(error))
    source = MadeInFile(str(path.resolve()), name, training)
    return _diagnose(subject, lambda: source, wanted, store, progress or _silent)


def _silent(text: str) -> None:
    pass


def _diagnose(
    subject: Subject,
    source: Callable[[], SubjectSource],
    modes: tuple[str, ...],
    store: Any,
    progress: Progress,
) -> Diagnosis:
    looked = examine(subject, progress)
    trial: TrialOfModes | None = None
    if modes:
        try:
            target = ModesTarget(subject, source(), modes)
            trial = try_modes(target, store, progress)
            looked = replace(looked, findings=(*looked.findings, *_skipped(subject, trial)))
        except (UsageError, TuningFailedError) as error:
            looked = replace(looked, left_out=(*looked.left_out, f"modes not timed: {error}"))
    place = subject.place
    return Diagnosis(subject.name, str(place), _torch_version(), looked, trial)


def _skipped(subject: Subject, trial: TrialOfModes) -> list[Finding]:
    """CUDA graphs that a mode asked for and torch did not use: a finding only on a GPU."""
    if device_of(subject) is None:
        return []
    skipped: dict[str, list[str]] = {}
    for one in trial.modes:
        if one.cudagraph_skip:
            skipped.setdefault(one.cudagraph_skip, []).append(one.mode)
    remedy = Remedy("remove the cause, or use a mode without CUDA graphs")
    return [
        Finding("cuda-graphs", f"in {' and '.join(modes)}: {why}", subject.place, (remedy,))
        for why, modes in skipped.items()
    ]


def checked_modes(modes: Sequence[str]) -> tuple[str, ...]:
    """Eager first and always among them: every other one is compared with it."""
    for mode in modes:
        if mode not in MODES:
            raise UsageError(f"torch.compile has no mode '{mode}'{did_you_mean(mode, MODES)}")
    return (EAGER, *(mode for mode in MODES if mode in modes and mode != EAGER)) if modes else ()


def try_modes(target: ModesTarget, store: Any, progress: Progress) -> TrialOfModes:
    """Ctrl-C ends the trial and keeps what is known."""
    from whet.engine.recovery.interrupt import Interrupted
    from whet.engine.settings import resolve_settings
    from whet.engine.tuning import tune
    from whet.store import open_store

    settings = resolve_settings().settings
    if settings.first_call_limit_s is None:
        settings = replace(settings, first_call_limit_s=FIRST_CALL_S)
    trials: dict[str, Trial] = {}

    def listen(event: Event) -> None:
        if isinstance(event, TrialFinished):
            trials[event.trial.config.id] = event.trial
        said = _said(event)
        if said:
            progress(said)

    with ExitStack() as stack:
        if store is None or isinstance(store, str | Path):
            where = settings.store if store is None else store
            store = stack.enter_context(open_store(where, bundle=settings.bundle))
        try:
            result = tune(target, store=store, settings=settings, on_event=listen, mode="tune")
        except Interrupted as stopped:
            return trial_of_modes(trials.values(), target.modes, stopped.result)
        known = {one.config.id: one for one in store.trials(target.workload().id)}
    return trial_of_modes({**known, **trials}.values(), target.modes, result)


def _said(event: Event) -> str:
    from whet.core.event import DuelEnded, DuelStarted, MeasureStarted, RunFinished

    match event:
        case MeasureStarted():
            return f"timing {event.config['mode']}: a new process with empty caches"
        case TrialFinished() if event.trial.median_ns is not None:
            first = event.trial.facts.get("first_call_s")
            took = f", first call {first:.1f} s" if isinstance(first, float) else ""
            return f"{event.trial.config['mode']}: {event.trial.median_ns / 1e6:.3g} ms{took}"
        case TrialFinished():
            return f"{event.trial.config['mode']}: {event.trial.status}"
        case DuelStarted():
            return "side by side: " + ", ".join(str(one["mode"]) for one in event.rivals)
        case DuelEnded():
            return f"fastest: {event.winner['mode']}"
        case RunFinished() if event.result.source == "stored":
            return "modes: answered from the store"
    return ""


def require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"the doctor needs torch ({error}); install it with pip install torch"
        ) from None


def _torch_version() -> str:
    import torch

    return str(torch.__version__)
