"""How Inductor's own tuning becomes whet's, and goes back."""

from __future__ import annotations

import hashlib
import inspect
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

from whet._version import __version__
from whet.core.config import Config
from whet.core.errors import TuningFailedError
from whet.core.mode import Mode
from whet.core.run import Result
from whet.core.status import Status
from whet.engine.fallback.calls import (
    BusyElsewhere,
    CallDecisions,
    UndecidedCall,
    choice_without_tuning,
    in_store_or_memory,
    opened,
)
from whet.engine.fallback.mode import current_mode
from whet.engine.fallback.untuned import exact_pick
from whet.engine.guard import HostLostError
from whet.engine.log import say_once
from whet.engine.plan import Plan
from whet.engine.settings import resolve_settings
from whet.engine.tuning import tune
from whet.store import Store
from whet.targets.inductor.descent import Descents, kernels_unknown
from whet.targets.inductor.operation import KERNEL, LeftAlone, Operation, OperationTarget, is_extern
from whet.targets.inductor.ptxas import use_one_ptxas
from whet.targets.inductor.target import InductorTarget, stored_pick
from whet.targets.triton.live import InstalledKernel

# Of torch; what is inside others is not known.
OLDEST, NEWEST = (2, 9), (2, 13)

# What is put in place of torch's own, and the parameters that it must have.
_LOOKUP = ("choices", "op", "inputs", "benchmark")
_BENCHMARK = ("choices", "autotune_args")

# Of a choice that was not measured.
_UNKNOWN = float("inf")

_lock = threading.RLock()
_taken: Taken | None = None


def take_inductor(kernels: bool = False) -> str:
    """Puts whet behind Inductor's choices among kernels, and with `kernels` behind what it tunes of
    its own; otherwise leaves Inductor as it is, and
    says why."""
    global _taken
    with _lock:
        if _taken is None:
            why = unknown_inside()
            if why:
                say_once(f"Inductor's own tuning stays as it is: {why}")
                return why
            use_one_ptxas()
            _taken = Taken()
        if kernels:
            _taken.take_kernels()
        return ""


def give_inductor_back() -> None:
    global _taken
    with _lock:
        if _taken is not None:
            _taken.give_back()
            _taken = None


def operations() -> tuple[InstalledKernel, ...]:
    """One for each kind of operation that whet was asked about."""
    taken = _taken
    return () if taken is None else taken.described()


def unknown_inside() -> str:
    """Why this torch cannot be taken; empty where it can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    found = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if not OLDEST <= version <= NEWEST:
        between = f"{'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}"
        return f"torch {torch.__version__} is not among those that were read ({between})"
    try:
        from torch._inductor.select_algorithm import AlgorithmSelectorCache as Cache
    except Exception as error:
        return f"torch._inductor cannot be imported ({type(error).__name__}: {error})"
    for name, wanted in (("lookup", _LOOKUP), ("benchmark_choices", _BENCHMARK)):
        method = getattr(Cache, name, None)
        has = () if method is None else tuple(inspect.signature(method).parameters)
        own = has[1:] if name == "lookup" else has
        if own[: len(wanted)] != wanted:
            return f"AlgorithmSelectorCache.{name} has other parameters than in torch 2.13"
    return ""


# What is being tuned while Inductor makes operands for it.
_asked: ContextVar[_Undecided | None] = ContextVar("whet_inductor_asked", default=None)


class Taken:
    """Inductor with whet behind it, and what was decided since."""

    def __init__(self) -> None:
        from torch._inductor import config
        from torch._inductor.select_algorithm import AlgorithmSelectorCache as Cache
        from torch.compiler import config as compiler

        self._kind: Any = Cache
        self._compiler: Any = compiler
        self._before = {name: vars(Cache).get(name) for name in ("lookup", "benchmark_choices")}
        self._stock_lookup = Cache.lookup
        self._stock_benchmark = Cache.benchmark_choices
        self._tag = compiler.cache_key_tag
        self._config: Any = config
        # What needs more shared memory than there is would be built in vain.
        self._pruned = getattr(config, "max_autotune_prune_choices_based_on_shared_mem", None)
        self.asking = threading.RLock()
        self.decisions: CallDecisions[Config] = CallDecisions()
        self.picks: dict[str, Config] = {}
        self.left: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self._keys: dict[str, set[str]] = {}
        self._put()
        self._descents: Descents | None = None

    def _put(self) -> None:
        taken = self

        def lookup(
            self: Any, choices: Any, op: str, inputs: str, benchmark: Any, *rest: Any, **named: Any
        ) -> Any:
            ask = partial(taken._stock_lookup, self, choices, op, inputs)
            if any(one is not None for one in (*rest, *named.values())):
                return ask(benchmark, *rest, **named)  # about other sizes than it has
            return taken.asked(ask, choices, op, inputs, benchmark)

        def benchmark_choices(
            cls: Any, choices: Any, autotune_args: Any, *rest: Any, **n: Any
        ) -> Any:
            undecided = _asked.get()
            if undecided is None or any((*rest, *n.values())) or not undecided.asks_of(choices):
                return taken._stock_benchmark(choices, autotune_args, *rest, **n)
            return undecided.measured(choices, autotune_args)

        self._kind.lookup = lookup
        self._kind.benchmark_choices = classmethod(benchmark_choices)
        if self._pruned is not None:
            self._config.max_autotune_prune_choices_based_on_shared_mem = True
        # A graph in Inductor's cache was decided on by whoever compiled it.
        self._compiler.cache_key_tag = f"{self._tag}whet-{__version__}-{_decided_by()}"

    def take_kernels(self) -> None:
        why = kernels_unknown()
        if why:
            say_once(f"Inductor's own kernels stay as they are: {why}")
        elif self._descents is None:
            self._descents = Descents(self)

    def give_back(self) -> None:
        for name, before in self._before.items():
            if before is None:
                delattr(self._kind, name)
            else:
                setattr(self._kind, name, before)
        if self._descents is not None:
            self._descents.give_back()
        if self._pruned is not None:
            self._config.max_autotune_prune_choices_based_on_shared_mem = self._pruned
        self._compiler.cache_key_tag = self._tag

    def asked(
        self, ask: Callable[..., Any], choices: Any, op: str, inputs: str, benchmark: Any
    ) -> Any:
        """Milliseconds of every choice, of which Inductor takes the least."""
        if len(choices) < 2:
            return ask(benchmark)
        try:
            operation = Operation(op, inputs, choices)
            target = OperationTarget(operation)
        except LeftAlone as why:
            self.left[op] = str(why)
            return ask(benchmark)
        with self.asking:  # a backward graph may be compiled by a thread of autograd's
            mode = self.mode()
            if mode == "off":
                return ask(benchmark)
            # Other backends, asked for in the same process, are other choices for the same product.
            key = f"{self.note(target)}/{target.space.id}"
            if benchmark is None:
                known = self._known(target, mode, key)
                return {} if known is None else _as_times(operation, {known: 1.0}, known)
            began = time.monotonic()
            call = _Undecided(self, ask, target, benchmark, key)
            try:
                return call.answer(self.decisions, mode)
            finally:
                self.spent(target, time.monotonic() - began)

    def mode(self) -> Mode:
        return self.decisions.mode(None, lambda: None)

    def note(self, target: InductorTarget) -> str:
        """For the list of what was taken; the key of its workload."""
        found = target.workload().id
        self._keys.setdefault(_short(target), set()).add(found)
        return found

    def spent(self, target: InductorTarget, seconds: float) -> None:
        op = _short(target)
        self.seconds[op] = self.seconds.get(op, 0.0) + seconds

    def _known(self, target: OperationTarget, mode: Mode, key: str) -> Config | None:
        """What the answer will be, where nothing has to be measured or built for it."""
        if key in self.picks:
            return self.picks[key]
        if mode != "tune":
            return None
        return stored_pick(target)

    def described(self) -> tuple[InstalledKernel, ...]:
        code = self._stock_lookup.__code__
        return tuple(
            InstalledKernel(
                kernel=f"inductor.{op}",
                place=f"{code.co_filename}:{code.co_firstlineno}",
                kind="torch._inductor",
                how="taken" if op in self._keys else "left alone",
                reason="" if op in self._keys else self.left[op],
                keys=len(self._keys.get(op, ())),
                seconds=self.seconds.get(op, 0.0),
                called=True,
                launch="by Inductor",
            )
            for op in sorted({*self._keys, *self.left})
        )


def _short(target: InductorTarget) -> str:
    return target.name.removeprefix("inductor.")


def _decided_by() -> str:
    lock = resolve_settings().settings.lock
    digest = ""
    if lock is not None:
        try:
            digest = hashlib.blake2b(Path(lock).read_bytes(), digest_size=8).hexdigest()
        except OSError:
            digest = "unreadable"
    return "-".join(part for part in (current_mode(None), digest) if part)


class _Undecided(UndecidedCall[Config]):
    """One question of Inductor's that no earlier answer of this process settles."""

    def __init__(
        self,
        taken: Taken,
        ask: Callable[..., Any],
        target: OperationTarget,
        benchmark: Callable[[Any], Any],
        key: str,
    ) -> None:
        self._taken, self._ask, self._target, self._benchmark = taken, ask, target, benchmark
        self.key: str = key
        self._times: dict[Config, float] = {}
        self._stock: Any = None

    def answer(self, decisions: CallDecisions[Config], mode: Mode) -> Any:
        operation = self._target.operation
        pick = decisions.known(mode, self.key, self._taken.picks)
        if pick is None:
            pick, _ = decisions.decide(self, mode)
        else:
            with opened(resolve_settings().settings) as store:
                self._note(store)
        if self._stock is not None:
            return self._stock
        if operation.gpu is None:
            return _as_times(operation, self._times, pick)
        # What is fused with a template is timed by Inductor's own benchmark, and compared with
        # these: they must be of the same kind.
        rivals = [operation.by_config[one] for one in self._compared(pick)]
        return _as_times(operation, self._of(self._benchmark(rivals)), pick)

    def _compared(self, pick: Config) -> list[Config]:
        """The pick, and the best template, with which more can be fused."""
        by_config = self._target.operation.by_config
        templates = [one for one in by_config if not is_extern(by_config[one])]
        timed = [one for one in templates if one in self._times]
        best = min(timed, key=self._times.__getitem__, default=None)
        if not is_extern(by_config[pick]) or best is None:
            return [pick]
        return [pick, best]

    def _of(self, timings: Mapping[Any, float]) -> dict[Config, float]:
        return {
            config: timings[choice]
            for config, choice in self._target.operation.by_config.items()
            if choice in timings
        }

    def first(self) -> Config:
        return self._target.operation.configs[0]

    def look_up(self, mode: Mode) -> tuple[Config, bool]:
        unread = "the store cannot be read; using the first choice"
        choice = choice_without_tuning(self._target, mode, unread)
        return choice.config, choice.source == "exact"

    def is_captured(self) -> bool:
        return False

    def while_capturing(self) -> Config:
        raise AssertionError("nothing is compiled while a graph is captured")

    def tune(self) -> Config:
        pick = self._stored()
        if pick is None:
            before = _asked.set(self)
            try:
                timings = self._benchmark(list(self._target.operation.by_config.values()))
            finally:
                _asked.reset(before)
            pick = self._taken.picks.get(self.key)
            if pick is None:  # in a process of its own, or by nobody: whet had no part in it
                self._stock = timings
                return self.first()
        self._taken.picks[self.key] = pick
        return pick

    def _stored(self) -> Config | None:
        with opened(resolve_settings().settings) as store:
            target = self._target
            pick = exact_pick(target, target.workload(), store)
            if pick is None:
                return None
            self._note(store)
        return pick.trial.config

    def _note(self, store: Store) -> None:
        for trial in store.trials(self._target.workload().id):
            if trial.status.measured and trial.median_ns is not None:
                self._times[trial.config] = trial.median_ns / 1e6

    def asks_of(self, choices: Any) -> bool:
        """Whether these are all: where Inductor measures in a process of its own, it asks here for
        some, and none is measured by us."""
        return len(choices) == len(self._target.operation.by_config)

    def measured(self, choices: Any, autotune_args: Any) -> dict[Any, float]:
        """On operands that Inductor has made. What it answers is not looked at where a pick was
        found."""
        operation = self._target.operation
        target = OperationTarget(operation, autotune_args)
        settings = resolve_settings().settings

        def tuned(store: Store) -> Result:
            return tune(
                target,
                store=store,
                settings=settings,
                plan=_plan(operation),
                progress=False,
                mode="tune",
                confirm=False,
            )

        token = _asked.set(None)
        try:
            result = in_store_or_memory(settings, tuned)
        except TuningFailedError as failure:
            say_once(f"{failure}; Inductor decides")
            return self._left_to_inductor(choices, autotune_args)
        except HostLostError as lost:
            if lost.result is None:
                say_once(f"{target.name} was not tuned: {lost}; Inductor decides")
                return self._left_to_inductor(choices, autotune_args)
            result = lost.result
        finally:
            _asked.reset(token)
        for trial in result.trials:
            if trial.status.measured and trial.median_ns is not None:
                self._times[trial.config] = trial.median_ns / 1e6
            elif trial.status is Status.WRONG_RESULT:
                say_once(f"{target.name}: {trial.config[KERNEL]} is wrong: {trial.error}")
        if result.source == "waited":
            say_once(f"{target.name} is not tuned yet: {result.notes[-1]}")
            raise BusyElsewhere(result.config)
        self._taken.picks[self.key] = result.config
        return _as_times(operation, self._times, result.config)

    def _left_to_inductor(self, choices: Any, autotune_args: Any) -> dict[Any, float]:
        found: dict[Any, float] = self._taken._stock_benchmark(choices, autotune_args)
        return found


def _plan(operation: Operation) -> Plan | None:
    if operation.gpu is None:
        return None
    from whet.targets.triton.tuning import gpu_plan

    return gpu_plan()


def _as_times(
    operation: Operation, times: Mapping[Config, float], pick: Config
) -> dict[Any, float]:
    """Milliseconds by choice; what has none was not measured. None is below the pick's, which is
    not the least of them where the difference was shown to be chance."""
    least = min([times.get(pick, _UNKNOWN), *times.values()], default=_UNKNOWN)
    least = 1.0 if least == _UNKNOWN else least
    found: dict[Any, float] = {}
    for config, choice in operation.by_config.items():
        if config == pick:
            found[choice] = least
        else:
            found[choice] = max(times.get(config, _UNKNOWN), least * (1 + 1e-9))
    return found
