"""`whet.warmup`: every kernel of a program tuned before it is needed."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from whet.builds.job import Job
from whet.builds.shared import SharedPool
from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.mode import Effort, checked_effort
from whet.core.run import Result
from whet.core.shown import watched
from whet.engine.ahead import Ahead, Prospect, wanted
from whet.engine.executors.current import selected, using
from whet.engine.executors.processes import ProcessPerDevice
from whet.engine.fallback.calls import opened
from whet.engine.fallback.mode import current_mode
from whet.engine.ranks import BoardLostError, Sharing, group_board, owners
from whet.engine.settings import Settings, resolve_settings
from whet.search import Sparing, Strategy
from whet.search.unguided import Given
from whet.targets.base import refuse_lazy, refuse_unfinished
from whet.targets.triton.call import Call
from whet.targets.triton.compiler.capture import jit_function
from whet.targets.triton.device import device_environment, device_names
from whet.targets.triton.keys import workload_key
from whet.targets.triton.target import TritonTarget
from whet.targets.triton.warming.active import SKIPPED, UntunedCall, set_active
from whet.targets.triton.warming.skipping import OutputsNeededError, SkipWatch, returned, watch
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
            ahead = Ahead(settings, _worker_count(settings, sharing))
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


def _worker_count(settings: Settings, sharing: Sharing | None) -> int:
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


# With little effort, one in so many of a list is built in addition at a time, and so often. That is
# another round of builds, which is worth it in lists of so many: with the kernels of libraries it
# found nothing in shorter ones.
A_PART, MOST_PARTS, LONG_LIST = 8, 2, 64


@dataclass(eq=False)
class MetKernel:
    """A kernel with a key that was not tuned when it was first called. `call` is the number of the
    program's call in which it was last met; `result` is there once it is tuned. One that is not
    `mine` is tuned by another rank. With little effort there is a `strategy`, which may want more
    once a part of the configs is known: then it is to be tuned `again`, and has so many `parts`.
    `launches` is how often it was met in one call, as far as is known."""

    tuner: Any
    cache_key: tuple[Any, ...]
    name: str
    key: str
    space_id: str
    prospect: Prospect
    configs: dict[str, Any]
    jobs: dict[Config, Job]
    call: int
    result: Result | None = None
    tried: bool = False
    mine: bool = True
    again: bool = False
    strategy: Strategy | None = None
    parts: int = 0
    launches: int = 1
    seconds: float = 0.0

    @property
    def program_ns(self) -> float:
        """What it takes of each call of the program, once it is tuned."""
        median_ns = None if self.result is None else self.result.best.median_ns
        return (median_ns or 0.0) * self.launches

    @property
    def settled(self) -> bool:
        """Nothing more will come of it, also where tuning it has failed."""
        return not self.again and (self.result is not None or self.tried)


@dataclass
class Program:
    """What kernels ask while `whet.warmup` calls a step. `deadline` is by `time.monotonic`. With
    `sharing`, the other ranks of a group do the same. `call_s` is what the latest call took, its
    tunings left out."""

    settings: Settings
    ahead: Ahead
    deadline: float | None = None
    sharing: Sharing | None = None
    said: Callable[[MetKernel], None] = lambda _: None
    calls: int = 0
    call_s: float = 0.0
    tuning_s: float = 0.0
    skips: SkipWatch | None = None
    kernels: dict[tuple[int, tuple[Any, ...]], MetKernel] = field(default_factory=dict)
    said_choice: Callable[[str, str], None] = lambda *_: None
    choices: dict[str, int] = field(default_factory=dict)
    _shared_out: bool = False
    _now: threading.local = field(default_factory=threading.local)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def pool(self) -> SharedPool:
        return self.ahead.pool

    @property
    def _quick(self) -> bool:
        return self.settings.effort == "quick"

    @property
    def _tuning_now(self) -> MetKernel | None:
        return getattr(self._now, "kernel", None)

    def effort(self, own: Effort | None) -> Effort | None:
        return own or ("full" if self.built_ahead else self.settings.effort)

    def search(self, own: Any) -> Any:
        """With little effort it is decided here what is tried: what has been built."""
        return Given() if own is None and self.built_ahead else own

    @property
    def built_ahead(self) -> Sequence[Config]:
        """Where all are tried, the strategy asks for them by itself."""
        one = self._tuning_now
        return one.prospect.configs if one is not None and self._quick else ()

    @property
    def left(self) -> list[MetKernel]:
        """Met in the latest call, and not tuned yet."""
        return [one for one in self.kernels.values() if not one.settled and one.call == self.calls]

    @property
    def seconds_left(self) -> float | None:
        return None if self.deadline is None else self.deadline - time.monotonic()

    @property
    def out_of_time(self) -> bool:
        left = self.seconds_left
        return left is not None and left <= 0

    def budget(self, own: Budget | str | float | None) -> Budget | str | float | None:
        left = self.seconds_left
        if own is not None or left is None:
            return own
        return Budget(seconds=max(0.5, left))

    def met(self, call: UntunedCall) -> Any:
        tuner = call.tuner
        with self._lock:
            one = self.kernels.get((id(tuner), call.key))
            if one is None:
                one = self._prepared(call)
            elif one.call == self.calls:
                one.launches += one.result is None and self.calls == 1
            one.call = self.calls
        use = returned(tuner)
        if use == "kept":
            return self._tune_at_once(one)
        if one.settled or (self.skips is None and self._is_due(one)):
            return self._tune(one)
        if not one.prospect.configs and tuner.whet_own_benchmark:
            return self._tune(one)  # the store has it
        if one.again and one.result is not None:
            return one.configs[one.result.config.id]
        tuner.best_config = call.configs[0]
        if self.skips is not None:
            arguments = [*call.args, *call.kwargs.values()]
            if use == "dropped" and self.skips.may_skip(arguments):
                return SKIPPED
            self.skips.launched(arguments)
        ready = self.ahead.ready(one.prospect)
        if ready is None:  # nothing could be built, and the tuning says why
            return self._tune(one)
        return one.configs[ready.id]

    def measures(self, tuner: Any, arguments: Iterable[Any]) -> None:
        if self.skips is not None and self.skips.has_unwritten(arguments):
            raise OutputsNeededError(f"{tuner.base_fn.__name__}, which measures by itself")

    def _tune_at_once(self, one: MetKernel) -> None:
        """It is not met again, and not with outputs that were not written."""
        if self.skips is not None:
            raise OutputsNeededError(f"{one.name}, which a wrapper keeps")
        one.strategy = None
        self._tune(one)

    def _tune(self, one: MetKernel) -> None:
        one.tried = True
        self._now.kernel = one

    def tuned(self, target: TritonTarget, result: Result) -> None:
        one = self._tuning_now
        assert one is not None
        one.result, one.again = result, False
        one.seconds += result.run.wall_s
        self.tuning_s += result.run.wall_s
        if self._wants_more(one, target, result):
            one.again = True
        elif one.configs:
            self.said(one)

    def _wants_more(self, one: MetKernel, target: TritonTarget, result: Result) -> bool:
        """Builds of what is worth it are begun, and the kernel is tuned again with these."""
        if one.strategy is None or self.sharing is not None or self.out_of_time:
            return False
        if len(target.menu.by_id) < LONG_LIST or one.parts == MOST_PARTS or not self._weighs(one):
            return False
        one.strategy.tell(result.trials)
        if isinstance(one.strategy, Sparing) and one.strategy.enough:
            return False
        more = one.strategy.ask(max(2, len(target.menu.by_id) // A_PART))
        if not more:
            return False
        one.parts += 1
        took = (trial.cost.work.get("build", 0.0) for trial in result.trials)
        one.prospect = replace(
            one.prospect,
            configs=tuple(more),
            identities={},
            took_s=(*one.prospect.took_s, *filter(None, took)),
        )
        one.configs.update((config.id, target.menu.by_id[config.id]) for config in more)
        self.ahead.begin(one.prospect, _jobs(target, one))
        return True

    def _weighs(self, one: MetKernel) -> bool:
        """Whether it takes at least as much of the program as the kernels that are tuned do on
        average: of the others even a poor config is felt little."""
        known = [other.program_ns for other in self.kernels.values() if other.result is not None]
        return one.program_ns * len(known) >= sum(known)

    def may_choose(self, choice: str) -> bool:
        with self._lock:
            self.choices[choice] = self.calls
            settled = all(one.settled for one in self.kernels.values())
            # Another call shows that its implementations have no kernel that was not met yet.
            return self.sharing is None and self.skips is None and settled and self.calls > 1

    def chose(self, choice: str, pick: str) -> None:
        self.choices.pop(choice, None)
        self.said_choice(choice, pick)

    @property
    def _choices_left(self) -> bool:
        return self.calls in self.choices.values()

    def reopen(self) -> None:
        """After a call: what is to be tuned again must be met again."""
        for one in self.kernels.values():
            if one.again and one.call == self.calls:
                with suppress(KeyError):
                    del one.tuner.cache[one.cache_key]

    def share_out(self) -> None:
        """Once all ranks have met their kernels, each is one rank's to tune."""
        assert self.sharing is not None
        self._shared_out = True
        met = {self._name(one): len(one.configs) for one in self.left}
        found = owners(self.sharing.exchange("met", met))
        for one in self.left:
            one.mine = found[self._name(one)] == self.sharing.rank
            if one.mine:
                self.ahead.begin(one.prospect, one.jobs.items())

    def go_on(self) -> bool:
        """Whether another call of the program is needed; waits until it has something to tune."""
        if self.sharing is None:
            if self.out_of_time or not (self.left or self._choices_left):
                return False
            if not self.left:
                return True
            self.ahead.wait([one.prospect for one in self.left], self.seconds_left, self.call_s)
            return not self.out_of_time
        said = self.sharing.exchange(f"left/{self.calls}", [len(self.left), self.out_of_time])
        if not any(left for left, _ in said) or any(late for _, late in said):
            return False
        self.sharing.wait_for_signal(f"go/{self.calls}", self._has_news)
        return True

    def _has_news(self, seconds: float) -> bool:
        """Whether another call would bring this rank further; waits that long for it."""
        theirs = [one for one in self.left if not one.mine]
        mine = [one.prospect for one in self.left if one.mine]
        return (
            self.out_of_time or any(map(self._is_due, theirs)) or self.ahead.any_due(mine, seconds)
        )

    def go_alone(self) -> None:
        """The other ranks are gone: all that is left is this one's."""
        self.sharing = None
        for one in self.left:
            one.mine = True
            self.ahead.begin(one.prospect, one.jobs.items())

    def _name(self, one: MetKernel) -> str:
        return f"{one.prospect.workload_id}/{one.space_id}"

    def _is_due(self, one: MetKernel) -> bool:
        if self.sharing is not None and not one.mine:
            return self.sharing.is_agreed(one.prospect.workload_id, one.space_id)
        return not self.out_of_time and self.ahead.due(one.prospect)

    def _prepared(self, call: UntunedCall) -> MetKernel:
        tuner = call.tuner
        named = workload_key(tuner.keys, call.passed, tuner.whet_buckets)
        target = TritonTarget(
            Call(tuner, call.args, call.kwargs), call.configs, named, self.settings
        )
        workload = target.workload()
        choices: tuple[Any, ...] = ()
        if tuner.whet_own_benchmark:
            with opened(self.settings) as store:
                choices = wanted(target, store, self.settings)
        # A kernel of many lines takes long to compile.
        size = float(len(jit_function(tuner).src))
        some = self._quick and len(choices) < len(target.menu.by_id)
        prospect = Prospect(target.name, workload.id, choices, size, partial=some)
        shown = ", ".join(f"{name}={value}" for name, value in named.items())
        by_id = {config.id: target.menu.by_id[config.id] for config in choices}
        one = MetKernel(
            tuner, call.key, target.name, shown, target.space.id, prospect, by_id, {}, self.calls
        )
        if self._quick and choices:
            one.strategy = _sparing(target, self.settings)
        self.kernels[id(tuner), call.key] = one
        shared = self.sharing is not None and not self._shared_out
        if not shared:
            self.ahead.begin(prospect, _jobs(target, one))
        else:
            self.ahead.begin(prospect, list(_jobs(target, one))[:1])
        return one


def _sparing(target: TritonTarget, settings: Settings) -> Strategy:
    from whet.search.quick import Quick  # brings the models with it

    return Quick(target.space, settings.seed)


def _jobs(target: TritonTarget, one: MetKernel) -> Iterator[tuple[Config, Job]]:
    """Written down as they are made; making them takes a while."""
    for config in one.prospect.configs:
        job = target.job(config)
        if job is not None:
            one.jobs[config] = job
            yield config, job
