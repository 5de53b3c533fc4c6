"""A call of a choice, as a target of the engine."""

from __future__ import annotations

import inspect
import itertools
import platform
import sys
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import partial
from types import FunctionType
from typing import Any, Protocol
from weakref import WeakValueDictionary

from whet.builds.job import Job
from whet.core.budget import Budget
from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property
from whet.core.mode import Mode
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Method
from whet.core.workload import Device, Workload
from whet.engine.fallback.calls import timing_locks
from whet.engine.settings import Settings, resolve_settings
from whet.engine.target import BenchLimits
from whet.engine.turns import LONGEST_VISIT_S, OneAtATime
from whet.measure import Timer
from whet.measure.bench.executor import LocalBench
from whet.measure.bench.protocol import Bench
from whet.measure.timers import CpuTimer
from whet.targets import fingerprint
from whet.targets.base import host_device
from whet.targets.choice.keys import CallCost, CallKeys, Described, Key, _within
from whet.targets.choice.loaded import CallState, LoadedImplementation
from whet.targets.fingerprint import Parts, Source, digest, place_of
from whet.targets.triton import device
from whet.targets.triton.source import fingerprint as code_fingerprint

# Short samples would time the wait for the device at their end.
_EAGER_SAMPLE_NS = 2_000_000


class EagerTimer(CpuTimer):
    """Calls to a GPU from Python, one after another: the longer of the host's and the device's part
    counts. What it times waits for the device at the end of each sample."""

    name = "eager"

    def __init__(self) -> None:
        super().__init__(min_sample_ns=_EAGER_SAMPLE_NS)


class ChoiceTarget:
    """Timed in this process, where the arguments, the weights and the autograd graph are."""

    build_mode = "fork"

    def __init__(
        self,
        alternatives: Alternatives,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        key: Mapping[str, Any],
        cost: CallCost,
        grad: bool,
        gpu: int | None,
    ) -> None:
        self.alternatives = alternatives
        self.name: str = alternatives.name
        self.file: str = alternatives.file
        self.space: Space = alternatives.space
        self.mode: Mode | None = alternatives.mode
        self.args, self.kwargs, self.key = args, dict(kwargs), key
        self.cost, self.grad, self.gpu = cost, grad, gpu
        self.shares_host = gpu is None
        self._place = ""

    def with_cost(self, cost: CallCost) -> ChoiceTarget:
        """The same call where the other cost counts."""
        return ChoiceTarget(
            self.alternatives, self.args, self.kwargs, self.key, cost, self.grad, self.gpu
        )

    def implementation(self, config: Config) -> Callable[..., Any]:
        return self.alternatives.implementations[str(config[PARAMETER])]

    @cached_property
    def _settings(self) -> Settings:
        return resolve_settings().settings

    @property
    def method(self) -> Method:
        if self.gpu is None:
            return Method(CpuTimer.name)
        if self.cost == "eager":
            return Method(EagerTimer.name)
        return device.method(self.gpu, self._settings.l2, self._settings.l2_bytes, True)

    def _timer(self) -> Timer:
        if self.gpu is None:
            return CpuTimer()
        if self.cost == "eager":
            return EagerTimer()
        return device.timer(self.gpu, self._settings.l2, self._settings.l2_bytes, True)

    def _device(self) -> Device:
        return host_device() if self.gpu is None else device.describe(self.gpu)

    def workload(self) -> Workload:
        return self._workload

    @cached_property
    def _workload(self) -> Workload:
        source = self.alternatives.source
        torch = sys.modules.get("torch")
        toolchain = {"python": platform.python_version()}
        if torch is not None:
            toolchain = {"torch": str(torch.__version__).partition("+")[0]}
        knobs = sys.modules.get("triton.knobs")
        if knobs is not None and knobs.runtime.interpret:  # kernels run as Python, and take longer
            toolchain["triton"] = "Triton's interpreter"
        return Workload(
            kernel=self.name,
            fingerprint=source.fingerprint,
            device=self._device(),
            key=FrozenMap({**self.key, "cost": self.cost, "grad": self.grad}),
            toolchain=FrozenMap(toolchain),
            origin=source.origin,
        )

    def reject(self, config: Config) -> str | None:
        return None

    def job(self, config: Config) -> Job | None:
        return None

    def bench(self, limits: BenchLimits) -> Bench:
        self.state.room.limit(limits.device_bytes)
        if self.gpu is None:
            return _RestoringBench(self, self._timer(), room=self.state.room)
        settings = self._settings
        path = device.timing_lock_path(self.gpu, timing_locks(settings))
        alone = OneAtATime(path, min(LONGEST_VISIT_S, settings.agree_wait_s))
        return _RestoringBench(self, self._timer(), room=self.state.room, alone=alone)

    @cached_property
    def state(self) -> CallState:
        named = self.alternatives.keys.named(self.args, self.kwargs)
        on_gpu = self.gpu is not None
        return CallState(self.args, self.kwargs, named, self.cost, self.grad, on_gpu)

    def load(self, config: Config, artifact: Any) -> LoadedImplementation:
        alternatives = self.alternatives
        expect = self._expect if alternatives.checks else None
        fn = self.implementation(config)
        return LoadedImplementation(self.state, fn, expect, alternatives.rtol, alternatives.atol)

    def _expect(self) -> None:
        """Asks the reference, or the first implementation that works, once."""
        state, alternatives = self.state, self.alternatives
        if state.reference is not None:
            return
        own = [] if alternatives.reference is None else [alternatives.reference]
        problem: Exception | None = None
        for fn in own or alternatives.implementations.values():
            try:
                with _within(self.cost):
                    state.expected, state.may_change = state.observed(fn)
            except Exception as error:
                problem = error
                state.saved.restore()
                continue
            state.reference = fn
            return
        what = "the reference" if own else "every implementation"
        text = f"{what} failed: {type(problem).__name__}: {problem}"
        raise ConfigFailure(Status.RUN_ERROR, text) from problem

    def let_go(self) -> None:
        """Puts the arguments back and drops the copies."""
        if "state" in self.__dict__:
            self.state.let_go()

    def twin(self, config: Config, facts: Mapping[str, Value]) -> Hashable | None:
        return None

    def features(self, config: Config) -> Mapping[str, float]:
        return {}

    def placed(self, place: str) -> ChoiceTarget:
        self._place = place
        return self

    def defined_at(self) -> str:
        return self._place or place_of(self.file, self.alternatives)

    def call_arguments(self) -> Mapping[str, Any]:
        return self.alternatives.keys.named(self.args, self.kwargs)

    def tune_key(self) -> None:
        return None

    def tune_remedy(self, command: str) -> str:
        called = self.alternatives.called
        return (
            f"call {called}(…) once with such arguments in mode 'tune' (WHET_MODE=tune), or run "
            f"whet.tune({called}.target(…))"
        )


class _RestoringBench(LocalBench):
    """Leaves the caller's arguments as they were, however a tuning ends."""

    def __init__(self, target: ChoiceTarget, timer: Timer, **keywords: Any) -> None:
        super().__init__(target, timer, **keywords)
        self._target = target

    def close(self) -> None:
        super().close()
        self._target.let_go()


# The one parameter of a choice.
PARAMETER = "implementation"


class Alternatives:
    """`implementations` is a dictionary by name, of which the first is the default."""

    def __init__(
        self,
        implementations: Mapping[str, Callable[..., Any]],
        *,
        name: str,
        file: str,
        key: Key,
        buckets: Mapping[str, Any] | None,
        reference: Callable[..., Any] | None,
        rtol: float | None,
        atol: float | None,
        checks: bool,
        cost: CallCost | None,
        mode: Mode | None,
        budget: Budget | None,
        wait_limit_s: float | None = None,
    ) -> None:
        self.implementations = dict(implementations)
        self.name, self.file = name, file
        self.reference, self.rtol, self.atol, self.checks = reference, rtol, atol, checks
        self.cost, self.mode, self.budget = cost, mode, budget
        self.wait_limit_s = wait_limit_s
        first = next(iter(self.implementations.values()))
        self.keys = CallKeys(key, buckets, first)
        self.__name__ = name
        self.__doc__ = getattr(first, "__doc__", None)
        with suppress(AttributeError):
            self.__wrapped__ = first

    @cached_property
    def space(self) -> Space:
        return Space({PARAMETER: list(self.implementations)})

    @cached_property
    def source(self) -> Source:
        return source_of_choice(self.name, self.implementations)

    @property
    def called(self) -> str:
        """Its name in its file, which need not be the one that results are stored under."""
        return place_of(self.file, self).rpartition(":")[2] or self.name

    @property
    def title(self) -> str:
        stored = "" if self.called == self.name else f" (stored as '{self.name}')"
        return f"the choice '{self.called}'{stored}"

    @property
    def first(self) -> str:
        return next(iter(self.implementations))


class Traced(Protocol):
    """What `torch.compile` asks of a choice while it traces."""

    number: str
    keys: CallKeys

    def compiled_place(self, description: Described, grad: bool, gpu: int | None) -> int: ...


# By a text, which is all of a choice that Dynamo always takes for a constant: an object is none in
# torch 2.11, and a number may be symbolic.
numbered: WeakValueDictionary[str, Traced] = WeakValueDictionary()
numbers = itertools.count()


def source_of_choice(name: str, implementations: Mapping[str, Any]) -> Source:
    parts = Parts()
    parts.code(name)
    for label, fn in implementations.items():
        parts.code(f"{label}: {_source(fn, set())}")
    return parts.source()


def _source(fn: Any, seen: set[int]) -> str:
    """Beside the function itself and the kernels it uses, the choices that it uses by name."""
    if id(fn) in seen:
        return ""
    seen.add(id(fn))
    nested = _implementations(fn)
    if nested is not None:
        return digest(*(f"{label}: {_source(one, seen)}" for label, one in nested.items()))
    if isinstance(fn, partial):
        values = [repr(one) for one in (*fn.args, *fn.keywords.items()) if _is_plain(one)]
        return digest(_source(fn.func, seen), *values)
    inner = _function(fn)
    if inner is None:
        return fingerprint.of_callable(fn)
    found = [_code(inner)]
    used = fingerprint._used_values(inner) if isinstance(inner, FunctionType) else {}
    for _, value in sorted(used.items()):
        if _implementations(value) is not None:
            found.append(_source(value, seen))
    return digest(*found)


def _function(fn: Any) -> Any:
    """A Python function or a Triton kernel, whatever is around it; None where there is none."""
    jit = sys.modules.get("triton.runtime.jit")
    if jit is not None and isinstance(fn, jit.KernelInterface):
        return fn
    forward = getattr(type(fn), "forward", None)
    inner = inspect.unwrap(forward if isinstance(forward, FunctionType) else fn)
    inner = getattr(inner, "__func__", inner)
    return inner if isinstance(inner, FunctionType) else None


def _code(function: Any) -> str:
    try:
        return code_fingerprint(function)
    except (TypeError, ValueError):  # something in it that has no source
        return fingerprint.of_callable(function)


def _implementations(value: Any) -> Mapping[str, Any] | None:
    found = getattr(type(value), "register", None) and getattr(value, "implementations", None)
    return found if isinstance(found, Mapping) else None


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str | tuple)
