"""`whet.doctor(model, inputs)`: the findings and the trial of modes, in one diagnosis."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from whet.core.errors import TuningFailedError, UsageError, did_you_mean
from whet.core.event import Event, MeasureStarted, TrialFinished
from whet.core.run import Result
from whet.core.tested import check_tested
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.doctor.examine import environment_findings, examine, written_findings
from whet.doctor.finding import Diagnosis, Examination
from whet.doctor.journey.gather import keep_report, write_report
from whet.doctor.modes.target import ModesTarget
from whet.doctor.modes.variants import EAGER, MODES, NAMES, knobs_for, knobs_without_effect
from whet.doctor.modes.verdict import TrialOfModes, mode_trial, trial_of_modes
from whet.doctor.subject import (
    CHILD,
    ExaminedModel,
    MadeInFile,
    SubjectSource,
    device_of,
    save,
    subject_in,
    subject_of,
)
from whet.doctor.symptoms import (
    failure_findings,
    notes,
    numeric_findings,
    numeric_notes,
    shrunk_by,
    symptoms,
    unheard,
)
from whet.engine.settings import Settings, resolve_settings
from whet.store import open_store

Progress = Callable[[str], None]

# A mode may compile for so long; a model is not a kernel.
FIRST_CALL_S = 1200.0

EVERY_S = 30.0

# What compilers leave in their caches for each kernel: for NVIDIA, for AMD, for a CPU.
_BINARIES = (".cubin", ".hsaco", ".so")


def doctor(
    model: Any,
    inputs: Any,
    *,
    training: bool = False,
    modes: Sequence[str] | None = None,
    full: bool = False,
    store: Any = None,
    report: str | Path | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Examines a model and times the modes of `torch.compile` on it.

    `inputs` is a tensor, a tuple of arguments or a dict of keywords, for one call; a list of these
    is several calls whose inputs differ. `modes` are those to time, none where it is empty;
    `full` adds the knobs behind them, one at a time.
    `training` makes a call a forward and a backward pass. `store` is where timings are kept, as in
    `whet.tune`. `report` is an HTML file to write, which follows the model from Python to machine
    code.
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
            subject,
            lambda: save(subject, Path(folder)),
            _Wanted(wanted, full, store, report, progress or _silent),
        )


def doctor_file(
    path: Path,
    name: str,
    *,
    training: bool = False,
    modes: Sequence[str] | None = None,
    full: bool = False,
    store: Any = None,
    report: str | Path | None = None,
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
    asked = _Wanted(wanted, full, store, report, progress or _silent)
    return _diagnose(subject, lambda: source, asked)


def _silent(text: str) -> None:
    pass


@dataclass(frozen=True)
class _Wanted:
    modes: tuple[str, ...]
    full: bool
    store: Any
    report: str | Path | None
    progress: Progress


def _diagnose(
    subject: ExaminedModel, source: Callable[[], SubjectSource], wanted: _Wanted
) -> Diagnosis:
    looked = examine(subject, wanted.progress)
    trial: TrialOfModes | None = None
    device = ""
    workload: Workload | None = None
    if wanted.modes and not looked.interrupted:
        try:
            target = ModesTarget(subject, source(), _with_knobs(wanted, subject))
            workload = target.workload()
            device = workload.device.name
            trial = try_modes(target, wanted.store, wanted.progress)
            looked = _with_symptoms(looked, subject, target.source, trial, wanted)
        except (UsageError, TuningFailedError) as error:
            looked = replace(looked, left_out=(*looked.left_out, f"modes not timed: {error}"))
    place = subject.place
    done = Diagnosis(subject.name, str(place), _torch_version(), looked, trial, device=device)
    if wanted.report is None or done.interrupted:
        return done
    try:
        text = write_report(done, subject, source(), Path(wanted.report), wanted.progress)
        if trial is not None and workload is not None:
            with _opened(wanted.store, resolve_settings().settings) as store:
                keep_report(text, store, workload.id, wanted.progress)
    except KeyboardInterrupt:
        lines = (*looked.left_out, "report not written (interrupted)")
        return replace(done, examination=replace(looked, left_out=lines, interrupted=True))
    return done


def _with_knobs(wanted: _Wanted, subject: ExaminedModel) -> tuple[str, ...]:
    if not wanted.full:
        return wanted.modes
    knobs = knobs_for(device_of(subject) is not None, subject.training)
    return tuple(dict.fromkeys((*wanted.modes, *knobs)))


def _with_symptoms(
    looked: Examination,
    subject: ExaminedModel,
    source: SubjectSource,
    trial: TrialOfModes,
    wanted: _Wanted,
) -> Examination:
    gpu = device_of(subject) is not None
    found = symptoms(trial, subject.place, gpu=gpu)
    found += numeric_findings(trial, subject.place)
    failed, left_out = failure_findings(trial, subject.place), unheard(trial)
    if any(one.name == "compile-error" for one in looked.findings):
        failed = []
    interrupted = looked.interrupted
    try:
        if failed and not trial.interrupted:
            shrunk = shrunk_by(source, wanted.progress)
            failed = failure_findings(trial, subject.place, shrunk)
    except KeyboardInterrupt:
        interrupted = True
        left_out.append("not looked for: the smallest part that fails (interrupted)")
    full = wanted.full
    others = knobs_without_effect(gpu, subject.training, wanted.modes) if full else []
    return replace(
        looked,
        findings=(*looked.findings, *found, *failed),
        left_out=(*looked.left_out, *left_out),
        notes=(*notes(trial), *numeric_notes(trial), *others),
        interrupted=interrupted,
    )


def checked_modes(modes: Sequence[str]) -> tuple[str, ...]:
    """Eager first and always among them: every other one is compared with it."""
    for mode in modes:
        if mode not in NAMES:
            raise UsageError(f"torch.compile has no mode '{mode}'{did_you_mean(mode, NAMES)}")
    return (EAGER, *(mode for mode in NAMES if mode in modes and mode != EAGER)) if modes else ()


def try_modes(target: ModesTarget, store: Any, progress: Progress) -> TrialOfModes:
    """Ctrl-C ends the trial and keeps what is known."""
    from whet.engine.guard import Interrupted
    from whet.engine.tuning import tune

    settings = resolve_settings().settings
    if settings.first_call_limit_s is None:
        settings = replace(settings, first_call_limit_s=FIRST_CALL_S)
    trials: dict[str, Trial] = {}
    result: Result | None
    waiting = Waiting(progress, lambda: target.caches)

    def listen(event: Event) -> None:
        waiting.heard(event)
        if isinstance(event, TrialFinished):
            trials[event.trial.config.id] = event.trial
        said = _said(event)
        if said:
            progress(said)

    with _opened(store, settings) as kept, waiting:
        try:
            result = tune(
                target,
                search="grid",  # in the order of the table, so that an early end leaves its head
                store=kept,
                settings=settings,
                on_event=listen,
                mode="tune",
            )
        except Interrupted as stopped:
            result = stopped.result
        known = {one.config.id: one for one in kept.trials(target.workload().id)}
    return trial_of_modes({**known, **trials}.values(), target.modes, result)


@contextmanager
def _opened(store: Any, settings: Settings) -> Iterator[Any]:
    """A store that was given is the giver's to close."""
    if store is None or isinstance(store, str | Path):
        where = settings.store if store is None else store
        with open_store(where, bundle=settings.bundle) as opened:
            yield opened
    else:
        yield store


def _said(event: Event) -> str:
    from whet.core.event import DuelEnded, DuelStarted, MeasureStarted, RunFinished

    match event:
        case MeasureStarted():
            return f"timing {event.config['mode']}: a new process with empty caches"
        case TrialFinished() if event.trial.median_ns is not None:
            one = mode_trial(str(event.trial.config["mode"]), event.trial)
            took = "" if one.first_call_s is None else f", first call {one.first_call_s:.1f} s"
            if one.beside_eager is None:
                return f"{one.mode}: {event.trial.median_ns / 1e6:.3g} ms{took}"
            return f"{one.mode}: {one.beside_eager[1]:.2f} times as fast as eager{took}"
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
        import torch
    except ImportError as error:
        raise UsageError(
            f"the doctor needs torch ({error}); install it with pip install torch"
        ) from None
    check_tested("torch", torch.__version__)


def _torch_version() -> str:
    import torch

    return str(torch.__version__)


class Waiting:
    """Hears a trial's events, and between them speaks from a thread of its own. `caches` is where
    the modes have theirs, each in a folder of its name; it is asked while a mode is timed."""

    def __init__(
        self,
        progress: Callable[[str], None],
        caches: Callable[[], Path],
        every_s: float = EVERY_S,
    ) -> None:
        self._progress, self._caches, self._every_s = progress, caches, every_s
        self._under_way: tuple[str, float] | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._speaker = threading.Thread(target=self._speak, name="whet-waiting", daemon=True)

    def __enter__(self) -> Self:
        self._speaker.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._speaker.join()

    def heard(self, event: Event) -> None:
        if isinstance(event, MeasureStarted):
            self._now((str(event.config["mode"]), time.monotonic()))
        elif isinstance(event, TrialFinished):
            self._now(None)

    def _now(self, under_way: tuple[str, float] | None) -> None:
        with self._changed:
            self._under_way = under_way
            self._changed.notify()

    def _speak(self) -> None:
        with self._changed:
            while not self._closed:
                # Whoever is told of a change starts the clock anew.
                changed = self._changed.wait(self._every_s)
                if not changed and self._under_way is not None:
                    self._progress(self._said(*self._under_way))

    def _said(self, mode: str, since: float) -> str:
        said = f"{mode}: {time.monotonic() - since:.0f} s so far"
        compiled = kernels_in(self._caches() / mode)
        kernels = "1 kernel" if compiled == 1 else f"{compiled} kernels"
        return f"{said}, {kernels} compiled" if compiled else said


def kernels_in(folder: Path) -> int:
    """How many the compilers have left there; a folder may vanish meanwhile."""
    try:
        return sum(path.suffix in _BINARIES for path in folder.rglob("*"))
    except OSError:
        return 0
