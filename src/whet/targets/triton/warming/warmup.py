"""`whet.warmup`: every kernel of a program tuned before it is needed."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.mode import Effort, checked_effort
from whet.core.shown import watched
from whet.engine.ahead import Ahead
from whet.engine.executors.current import selected, using
from whet.engine.executors.processes import ProcessPerDevice
from whet.engine.fallback.mode import current_mode
from whet.engine.ranks import BoardLostError, Sharing, group_board
from whet.engine.settings import Settings, resolve_settings
from whet.targets.base import refuse_lazy, refuse_unfinished
from whet.targets.triton.devices import device_environment, device_names
from whet.targets.triton.warming.active import set_active
from whet.targets.triton.warming.program import MetKernel, Program
from whet.targets.triton.warming.skipping import OutputsNeededError, watch
from whet.targets.triton.warming.state import KeptState

# A program whose every call brings new keys is never done: so many calls beyond one for each
# kernel, and it ends.
MORE_CALLS = 10

_one_at_a_time = threading.Lock()
_warmups = count()


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
        kernels = "1 kernel" if done == 1 else f"{done} kernels"
        text = f"{kernels} tuned in {self.seconds:.1f} s, {self.calls} calls of the step"
        return text if rest == 0 else f"{text}; {rest} not tuned"


def warmup(
    step: Callable[..., Any],
    *args: Any,
    budget: str | float | Budget | None = None,
    effort: Effort | None = None,
    restore: bool = True,
    progress: bool | Callable[[str], None] | None = None,
    devices: str | Sequence[int] | None = None,
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

    `budget` is a time for the whole. With `effort="quick"` configs that are not expected to be
    worth their builds are left out. `progress` is a function that gets a line for each kernel;
    True prints these on stderr, the default on a terminal and in a notebook. Where the mode is not
    "tune", the step is called once and nothing is tuned. Ctrl-C keeps what is done.

    `devices` are GPUs of this host that measure beside each other, each in a process of its own:
    "all", or numbers such as [0, 1]. The step itself runs on this process's device.
    """
    refuse_lazy(step, "the step")
    settings = resolve_settings().settings
    if effort is not None:
        settings = replace(settings, effort=checked_effort(effort))
    allowed = Budget.parse(budget) if budget is not None else settings.budget
    if allowed.trials is not None:
        raise UsageError("the budget of a warm-up is a time, such as 60s; it has no trials")
    say, start = _printer(progress), time.monotonic()
    kept = KeptState(step, args, kwargs) if restore else None
    for note in () if kept is None else kept.cannot:
        say(f"not restored after each call: {note}")
    calls = _Calls(lambda: step(*args, **kwargs), kept, say)
    if current_mode() != "tune":
        return _untuned(calls, start)
    if not _one_at_a_time.acquire(blocking=False):
        raise UsageError("a warm-up is under way already; one process has one at a time")
    try:
        with ExitStack() as stack:
            sharing = _sharing(settings)
            ahead = Ahead(settings, _jobs(settings, sharing))
            stack.callback(ahead.close)
            deadline = None if allowed.seconds is None else start + allowed.seconds
            program = Program(replace(settings, budget=Budget()), ahead, deadline, sharing)
            program.said = lambda one: say(_line(one, program))
            program.said_choice = lambda choice, pick: say(f"{choice}: {pick}")
            set_active(program)
            stack.callback(set_active, None)
            if devices is not None:
                stack.enter_context(using(stack.enter_context(_on_devices(devices))))
            calls.run(program)
            result = _summary(program, time.monotonic() - start, calls.notes)
            say(str(result))
            return result
    finally:
        _one_at_a_time.release()


def _on_devices(devices: str | Sequence[int]) -> ProcessPerDevice:
    names = devices if isinstance(devices, str) else ",".join(map(str, devices))
    return ProcessPerDevice(selected(names, device_names()), device_environment)


def _untuned(calls: _Calls, start: float) -> Warmup:
    calls.call()
    note = f"the mode is '{current_mode()}', in which nothing is tuned"
    calls.say(note)
    return Warmup((), 1, time.monotonic() - start, False, (*calls.notes, note))


def _sharing(settings: Settings) -> Sharing | None:
    """With the other ranks of a process group, who call this just as often."""
    board = group_board()
    if board is None:
        return None
    return Sharing(board, f"warmup/{next(_warmups)}", settings.agree_wait_s)


def _jobs(settings: Settings, sharing: Sharing | None) -> int:
    """Ranks on the same machine share its cores."""
    beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if sharing is not None else 1
    return max(1, settings.jobs // beside)


class _Calls:
    """Calls the step until nothing is left to tune."""

    def __init__(
        self, step: Callable[[], Any], kept: KeptState | None, say: Callable[[str], None]
    ) -> None:
        self._step = step
        self._kept = kept
        self.say = say
        self.notes = [] if kept is None else list(kept.cannot)

    def run(self, program: Program) -> None:
        self._discover(program)
        found = [one for one in program.kernels.values() if _counts(one)]
        if found:
            configs = sum(len(one.configs) for one in found)
            self.say(f"kernels to tune: {len(found)}, configs: {configs}")
        try:
            if program.sharing is not None:
                program.share_out()
            self._repeat(program)
        except BoardLostError as lost:
            self.notes.append(f"each rank tunes for itself: {lost}")
            self.say(self.notes[-1])
            program.go_alone()
            self._repeat(program)

    def _repeat(self, program: Program) -> None:
        def most() -> int:
            return len(program.kernels) + len(program.choices) + MORE_CALLS

        while program.calls <= most() and program.go_on():
            self._call(program)

    def _discover(self, program: Program) -> None:
        """Without launches, until it turns out that some are needed. Ranks of a group launch all:
        they must call the step equally often."""
        watching = None if program.sharing is not None else watch()
        if watching is not None:
            try:
                with watching as program.skips:
                    self._call(program)
                return
            except OutputsNeededError:
                pass
            finally:
                program.skips = None
        self._call(program)

    def _call(self, program: Program) -> None:
        program.calls += 1
        start, before = time.monotonic(), program.tuning_s
        self.call()
        program.call_s = time.monotonic() - start - (program.tuning_s - before)
        program.reopen()

    def call(self) -> None:
        try:
            refuse_unfinished(self._step(), "the step")
        finally:
            if self._kept is not None:
                self._kept.restore()


def _summary(program: Program, seconds: float, notes: list[str]) -> Warmup:
    kernels = tuple(_warmed(one, program) for one in program.kernels.values() if _counts(one))
    complete = all(kernel.config is not None for kernel in kernels)
    return Warmup(kernels, program.calls, seconds, complete, tuple(notes))


def _counts(one: MetKernel) -> bool:
    """What the store had is no work of this warm-up's."""
    return bool(one.configs)


def _warmed(one: MetKernel, program: Program) -> WarmedKernel:
    result, note = one.result, ""
    if result is None:
        if one.call < program.calls:
            note = "the step did not launch it with this key again"
        else:
            note = "the budget ran out" if program.out_of_time else "tuning it failed"
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
    if progress is False or (progress is None and not watched()):
        return lambda _: None
    return lambda text: print(f"whet: {text}", file=sys.stderr, flush=True)
