"""A plain Python callable, tuned over its keyword arguments."""

from __future__ import annotations

import inspect
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.core.buckets import Buckets
from whet.core.config import Config, Value
from whet.core.errors import OtherSourceError, UsageError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.core.mode import Mode, checked_mode
from whet.core.space import Space
from whet.core.workload import Workload
from whet.engine.target import BenchLimits
from whet.measure.bench.bits import (
    BIT_CHECKS,
    EVEN,
    LAUNCHES,
    REAL,
    WIDE,
    BitCheck,
    bit_facts,
    checked_key,
    fill_array,
    value_hash,
)
from whet.measure.bench.executor import LocalBench
from whet.measure.bench.protocol import Bench, Verdict, compare, from_exception
from whet.measure.bench.remote import RemoteBench
from whet.measure.timers import CpuTimer, MakeTimer, timer_maker
from whet.targets import fingerprint
from whet.targets.base import (
    HostTarget,
    asked,
    host_device,
    refuse_lazy,
    refuse_unfinished,
    space_from,
)
from whet.targets.fingerprint import Source
from whet.targets.key import key_of


def function_bits(
    fn: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Value]:
    """Each call gets copies of the arrays, so that all begin from the same."""
    import numpy as np

    def call(inputs: str) -> dict[str, str]:
        arrays: dict[str, Any] = {}

        def copied(name: str, value: Any) -> Any:
            if not isinstance(value, np.ndarray):
                return value
            arrays[name] = value.copy()
            if inputs != REAL:
                fill_array(arrays[name], inputs, len(arrays))
            return arrays[name]

        given = [copied(str(place), value) for place, value in enumerate(args)]
        named = {name: copied(name, value) for name, value in keywords.items()}
        hashes = {"return value": value_hash(fn(*given, **named))}
        return hashes | {name: value_hash(array) for name, array in arrays.items()}

    runs = {REAL: [call(REAL) for _ in range(LAUNCHES)]}
    floating = [v for v in (*args, *keywords.values()) if isinstance(v, np.ndarray)]
    if not any(array.dtype.kind in "fc" for array in floating):
        return bit_facts(runs)
    try:
        runs |= {kind: [call(kind) for _ in range(LAUNCHES)] for kind in (EVEN, WIDE)}
    except Exception as error:
        why = f"it fails on others ({type(error).__name__}: {error})"
        return bit_facts({REAL: runs[REAL]}, why)
    return bit_facts(runs)


Check = Callable[[Any, Config], "bool | str"]


@dataclass(frozen=True)
class FunctionTarget(HostTarget):
    """`whet.function(fn, {"block": [16, 32]})`: times `fn(*args, **kwargs, block=…)`.

    It runs in a forked child, so that a config which crashes or never returns costs only that
    child; `isolate=False` keeps it in this process, for callables that hold a device or a lock.
    """

    fn: Callable[..., Any]
    space: Space
    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    key: FrozenMap[Any] = field(default_factory=FrozenMap)
    claims: FrozenMap[Any] = field(default_factory=FrozenMap)
    reference: Any = None
    check: Check | None = None
    bit_check: BitCheck | None = None
    rtol: float = 1e-5
    atol: float = 1e-8
    isolate: bool = True
    mode: Mode | None = None
    lock: str | None = None
    file: str = ""
    prepare: Callable[..., Any] | None = None
    place: str = ""
    make_timer: MakeTimer = CpuTimer

    build_mode = "fork"

    @property
    def samples(self) -> int | None:
        """How many samples of each config its timer takes; None to race them."""
        return getattr(self.make_timer, "samples", None)

    @property
    def source_text(self) -> str:
        return fingerprint.python_text(self.fn)

    def workload(self) -> Workload:
        source = fingerprint.source_of(self.fn, self.claims)
        return Workload(
            kernel=self.name,
            fingerprint=source.fingerprint,
            device=host_device(),
            key=FrozenMap({**self.key, **checked_key(self.bit_check)}),
            toolchain=FrozenMap({"python": platform.python_version()}),
            origin=source.origin,
        )

    def bench(self, limits: BenchLimits) -> Bench:
        if not self.isolate:
            return LocalBench(self, self.make_timer())
        here = (self._sent_source, host_device().name) if limits.elsewhere else None

        def make() -> FunctionTarget:
            if here is not None:
                self._refuse_other(*here)
            return self

        return RemoteBench(
            make,
            self.make_timer,
            mode="fork",
            memory_bytes=limits.memory_bytes,
            first_call_s=limits.first_call_s,
            open_session=limits.open_session,
        )

    @property
    def _sent_source(self) -> Source:
        return fingerprint.sent_source_of(self.fn, self.claims)

    def _refuse_other(self, source: Source, processor: str) -> None:
        """Another machine imports the function from its own files: what it measures counts only if
        it would be the same workload there."""
        fingerprint.refuse_other(source, self._sent_source)
        if (own := host_device().name) != processor:
            raise OtherSourceError(f"its processor is {own}, not {processor}")

    def call_arguments(self) -> Mapping[str, Any]:
        return {**{str(place): value for place, value in enumerate(self.args)}, **self.kwargs}

    def load(self, config: Config, artifact: Any) -> LoadedFunction:
        return LoadedFunction(self, config)

    def keywords(self, config: Config) -> dict[str, Any]:
        """What a call with this config is given by name."""
        return {**self.kwargs, **config}


class LoadedFunction:
    """The callable with one config bound to it."""

    def __init__(self, target: FunctionTarget, config: Config) -> None:
        self._target = target
        self._config = config
        self._keywords = target.keywords(config)
        self._returned: list[Any] = []
        self.first_call_ns: float | None = None
        self._ran = False
        self.facts: Mapping[str, Any] = {}
        self.compares = bool(
            target.reference is not None or target.check is not None or target.bit_check
        )

    def first_call(self) -> None:
        """What comes back is kept for the check, which then needs no call of its own."""
        target = self._target
        if target.prepare is not None:
            target.prepare(*target.args, **self._keywords)
        else:
            start = time.perf_counter_ns()
            self._returned = [self._first()]
            self.first_call_ns = float(time.perf_counter_ns() - start)

    def _first(self) -> Any:
        """What a call returns, if it did its work."""
        target, self._ran = self._target, True
        return refuse_unfinished(target.fn(*target.args, **self._keywords), f"{target.name}()")

    def repeat(self, n: int) -> None:
        self._returned.clear()
        if not self._ran and n > 0:
            self._first()
            n -= 1
        fn, args, keywords = self._target.fn, self._target.args, self._keywords
        for _ in range(n):
            fn(*args, **keywords)

    def check(self) -> Verdict:
        target, returned = self._target, self._returned
        if not self.compares:
            return Verdict(True, "")
        if target.bit_check is not None:
            self.facts = function_bits(target.fn, target.args, self._keywords)
            if target.reference is None:
                return Verdict(True, "")
        result = returned.pop() if returned else self._first()
        if target.reference is not None:
            verdict = compare(result, target.reference, rtol=target.rtol, atol=target.atol)
            if not verdict.ok:
                return verdict
        if target.check is not None:
            answer = self._answer(target.check, result)
            if isinstance(answer, str) and answer:
                return Verdict(False, answer)
            if answer is False:
                return Verdict(False, "the check function returned False")
        return Verdict(True, "")

    def _answer(self, check: Check, result: Any) -> bool | str:
        """An assertion that fails says what is wrong. Whatever else a check raises over the
        author's first config is its own mistake."""

        def judged() -> bool | str:
            try:
                return check(result, self._config)
            except AssertionError as wrong:
                return from_exception(wrong).message

        target = self._target
        return (
            judged()
            if self._config != target.space.first
            else asked(f"check= of {target.name}", judged)
        )

    def close(self) -> None:
        pass


def function(
    fn: Callable[..., Any],
    space: Space | Mapping[str, Sequence[Any]] | Iterable[Mapping[str, Any]],
    *,
    constraints: Sequence[Any] = (),
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    key: Mapping[str, Any] | None = None,
    reference: Any = None,
    check: Check | BitCheck | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    isolate: bool = True,
    mode: Mode | None = None,
    buckets: Mapping[str, Any] | None = None,
    prepare: Callable[..., Any] | None = None,
    timer: str | MakeTimer = CpuTimer,
    lock: str | Path | None = None,
) -> FunctionTarget:
    """Makes a callable tunable: each parameter of the space is passed to it by keyword.

    `reference` is compared with the return value of `fn`; `check(result, config)` returns False or
    a message if the result is wrong. With `check="bitwise"` only configs can win whose results are
    bit for bit those of the first config, with `check="deterministic"` only those that repeat
    their own. `key` names the problem (default: the shapes and dtypes of the
    arguments). Closure variables and globals that `fn` captures are part of the source: a different
    value is a different source, unless `key` has an entry of the same name. `buckets` map values of
    the key to one workload: "pow2", a list of upper bounds or a function. `mode` overrides the
    context and the settings for this target.

    Extra work in the first call of a config (compiling, filling a cache) is not timed; its limit is
    `first_call_limit`. If given, `prepare(*args, **kwargs, **config)` is called instead of that
    first call. `timer` is a timer class or the name of one: `"once"` calls each config a single
    time, for what is slow and hardly varies; other names are those of installed packages. Results
    of different timers are never compared. `lock` is a lock file, from which alone the modes
    `cached` and `require` then choose.
    """
    if not callable(fn):
        raise UsageError(f"whet.function needs a callable, not {type(fn).__name__}")
    refuse_lazy(fn, f"{getattr(fn, '__name__', type(fn).__name__)}()")
    if prepare is not None and not callable(prepare):
        raise UsageError(f"prepare= needs a callable, not {type(prepare).__name__}")
    for what, one in (("prepare=", prepare), ("check=", check)):
        refuse_lazy(one, what)
    if callable(reference):
        raise UsageError(
            "reference= is a function; give the value that fn must return, or use check="
        )
    if check is not None and not callable(check) and check not in BIT_CHECKS:
        raise UsageError(f'check is {check!r}; give a function, "bitwise" or "deterministic"')
    whole = space_from(space, constraints)
    check_keywords(fn, whole, dict(kwargs or {}))
    exact = key_of(key, dict(enumerate(args)), dict(kwargs or {}))
    ranges = Buckets.of(buckets, exact)
    return FunctionTarget(
        fn=fn,
        space=whole,
        name=name or str(getattr(fn, "__name__", type(fn).__name__)),
        args=tuple(args),
        kwargs=dict(kwargs or {}),
        key=FrozenMap({name: ranges.value(name, value) for name, value in exact.items()}),
        claims=exact if key is not None else FrozenMap(),
        reference=reference,
        check=check if callable(check) else None,
        bit_check=None if callable(check) else check,
        rtol=rtol,
        atol=atol,
        isolate=isolate,
        mode=None if mode is None else checked_mode(mode),
        lock=None if lock is None else str(lock),
        file=sys._getframe(1).f_code.co_filename,
        prepare=prepare,
        make_timer=timer_maker(timer),
    )


def check_keywords(fn: Callable[..., Any], space: Space, fixed: Mapping[str, Any]) -> None:
    """Raises where `fn` cannot be given the parameters of the space besides what is fixed."""
    for name in space.names:
        if name in fixed:
            raise UsageError(f"parameter '{name}' is tuned and also given in kwargs; remove one")
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    accepted = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for name in space.names:
        if name not in accepted:
            label = getattr(fn, "__name__", "the callable")
            raise UsageError(f"{label}() takes no parameter '{name}'{did_you_mean(name, accepted)}")
