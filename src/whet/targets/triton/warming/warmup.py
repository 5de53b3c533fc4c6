"""`whet.warmup`: every kernel of a program tuned before it is needed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.errors import UsageError
from whet.engine.ahead import Ahead
from whet.engine.fallback.mode import current_mode
from whet.engine.settings import resolve_settings
from whet.targets.triton.warming.active import active, set_active
from whet.targets.triton.warming.program import MetKernel, Program
from whet.targets.triton.warming.skipping import OutputsNeededError, watch
from whet.targets.triton.warming.state import KeptState

# A program whose every call brings new keys is never done: so many calls beyond one for each
# kernel, and it ends.
MORE_CALLS = 10

_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class WarmedKernel:
    """What came of one key of one kernel. Without a `config` it was not tuned; `note` says why."""

    kernel: str
    key: str
    config: Config | None
    source: str
    configs: int
    speedup: float | None
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class Warmup:
    """What a warm-up did. `calls` is how often the step was called; `complete` is False where a
    kernel was left untuned, because the budget ended or its call did not come again."""

    kernels: tuple[WarmedKernel, ...]
    calls: int
    seconds: float
    complete: bool
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        done = sum(kernel.config is not None for kernel in self.kernels)
        rest = len(self.kernels) - done
        text = f"{done} kernels tuned in {self.seconds:.1f} s, {self.calls} calls"
        return text if rest == 0 else f"{text}; {rest} not tuned"


def warmup(
    step: Callable[..., Any],
    *args: Any,
    budget: str | Budget | None = None,
    restore: bool = True,
    progress: bool | Callable[[str], None] | None = None,
    **kwargs: Any,
) -> Warmup:
    """Tunes every Triton kernel that `step(*args, **kwargs)` launches, all of them together.

    `step` is called several times. The first call only finds out which kernels there are: their
    configs are built in one pool, and launches are left out as long as nothing on the host depends
    on them. Later calls launch what is built, and tune each kernel on its own arguments as soon as
    its builds are there. It is done when a call meets nothing that is not tuned.

    After each call, parameters, buffers, gradients, optimizers, schedulers and random generators
    that the step can reach are put back as they were, unless `restore` is False; what cannot be is
    said before the first call. What the step does elsewhere (files, data loaders, logs) it does
    once per call.

    `budget` is a time for the whole. `progress` is a function that gets a line for each kernel;
    True prints these on stderr, which is the default on a terminal. Where the mode is not "tune",
    the step is called once and nothing is tuned. Ctrl-C keeps what is done.
    """
    settings = resolve_settings().settings
    allowed = Budget.parse(budget) if budget is not None else settings.budget
    if allowed.trials is not None:
        raise UsageError("the budget of a warm-up is a time, such as 60s; it has no trials")
    settings = replace(settings, budget=Budget())
    say = _printer(progress)
    start = time.monotonic()
    if current_mode() != "tune":
        kept = KeptState(step, args, kwargs) if restore else None
        step(*args, **kwargs)
        if kept is not None:
            kept.restore()
        note = f"the mode is '{current_mode()}', in which nothing is tuned"
        say(note)
        return Warmup((), 1, time.monotonic() - start, False, (note,))
    if active() is not None or not _one_at_a_time.acquire(blocking=False):
        raise UsageError("a warm-up is under way already; one process has one at a time")
    try:
        with ExitStack() as stack:
            ahead = Ahead(settings)
            stack.callback(ahead.close)
            deadline = None if allowed.seconds is None else start + allowed.seconds
            program = Program(settings, ahead, deadline)
            kept = KeptState(step, args, kwargs) if restore else None
            notes = [] if kept is None else list(kept.cannot)
            for note in notes:
                say(f"cannot be put back after a call: {note}")
            program.said = lambda one: say(_line(one, program))
            set_active(program)
            stack.callback(set_active, None)
            _Passes(program, lambda: step(*args, **kwargs), kept, say).run()
            result = _summary(program, time.monotonic() - start, notes)
            say(str(result))
            return result
    finally:
        _one_at_a_time.release()


class _Passes:
    """Calls the step until nothing is left."""

    def __init__(
        self,
        program: Program,
        step: Callable[[], Any],
        kept: KeptState | None,
        say: Callable[[str], None],
    ) -> None:
        self._program = program
        self._step = step
        self._kept = kept
        self._say = say

    def run(self) -> None:
        program = self._program
        self._discover()
        while program.left and not program.out_of_time:
            if program.calls > len(program.kernels) + MORE_CALLS:
                break
            program.wait()
            if not program.out_of_time:
                self._call()

    def _discover(self) -> None:
        """Without launches, until it turns out that some are needed."""
        watching = watch()
        if watching is not None:
            try:
                with watching as skips:
                    self._program.skips = skips
                    self._call()
                found = len(self._program.kernels)
                configs = sum(len(one.configs) for one in self._program.kernels.values())
                if found:
                    self._say(f"{found} kernels to tune, {configs} configs")
                return
            except OutputsNeededError:
                pass
            finally:
                self._program.skips = None
        self._call()

    def _call(self) -> None:
        self._program.calls += 1
        try:
            self._step()
        finally:
            if self._kept is not None:
                self._kept.restore()


def _summary(program: Program, seconds: float, notes: list[str]) -> Warmup:
    kernels = tuple(_warmed(one, program) for one in program.kernels.values() if _counts(one))
    complete = all(kernel.config is not None for kernel in kernels)
    return Warmup(kernels, program.calls, seconds, complete, tuple(notes))


def _counts(one: MetKernel) -> bool:
    """What the store had is no work of this warm-up's."""
    return bool(one.prospect.configs)


def _warmed(one: MetKernel, program: Program) -> WarmedKernel:
    result, note = one.result, ""
    if result is None:
        if one.call < program.calls:
            note = "its call did not come again"
        else:
            note = "the budget ended" if program.out_of_time else "tuning it failed"
    return WarmedKernel(
        kernel=one.name,
        key=one.key,
        config=None if result is None else result.config,
        source="" if result is None else result.source,
        configs=len(one.configs),
        speedup=None if result is None else result.speedup,
        seconds=one.seconds,
        note=note,
    )


def _line(one: MetKernel, program: Program) -> str:
    kernels = [kernel for kernel in program.kernels.values() if _counts(kernel)]
    done = sum(kernel.result is not None for kernel in kernels)
    result = one.result
    assert result is not None
    times = "" if result.speedup is None else f", {result.speedup:.2f}× the first config"
    return f"{done}/{len(kernels)} {one.name}: [{result.config}]{times}"


def _printer(progress: bool | Callable[[str], None] | None) -> Callable[[str], None]:
    if callable(progress):
        return progress
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return lambda _: None
    return lambda text: print(f"whet: {text}", file=sys.stderr, flush=True)
