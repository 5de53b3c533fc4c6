"""Where whet hears of every specialization that Triton does not have in memory.

`JITFunction.run` packs the arguments of such a call and then calls `_do_compile`, which finds the
binary in the disk cache or compiles it. Both methods are wrapped on the class, so that kernels are
reached whoever made them and whenever; a call whose binary is in memory passes through neither.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Protocol

from whet.targets.triton.compiler.capture import listening_now
from whet.targets.triton.jit.specialization import (
    Met,
    Specialization,
    arguments_of,
    encoded,
    kernel_name,
)
from whet.targets.triton.request import DeviceLimits, Request


@dataclass(frozen=True)
class CompileCall:
    """What `_do_compile` was asked for. `special` and `passed` are Triton's list of what is special
    about each argument and the options as they were passed; `values` are the arguments, and
    `named` those that were passed by name."""

    jit: Any
    key: str
    signature: dict[str, Any]
    device: Any
    constexprs: dict[Any, Any]
    options: Any
    attrs: dict[Any, Any]
    warmup: bool
    special: Sequence[Any]
    passed: Mapping[str, Any]
    values: Mapping[str, Any]
    named: Collection[str] = ()

    @property
    def target(self) -> Any:
        return self.jit.device_caches[self.device][2]

    def request(self) -> Request:
        return Request(
            self.jit,
            self.signature,
            self.constexprs,
            self.attrs,
            dict(self.options.__dict__),
            self.target,
            DeviceLimits(),
        )

    def specialization(self, met: Met | None = None) -> Specialization:
        import triton

        target, code = self.target, self.jit.fn.__code__
        both = set(self.named) & set(self.options.__dict__)
        return Specialization(
            kernel=kernel_name(self.jit),
            place=f"{code.co_filename}:{code.co_firstlineno}",
            arguments=tuple(arguments_of(self.jit.params, list(self.special), self.values, both)),
            options=tuple((name, encoded(value)) for name, value in self.passed.items()),
            target=(target.backend, target.arch, target.warp_size),
            triton=triton.__version__,
            met=met or Met(),
        )


class Observer(Protocol):
    """Hears of compiles. What `before` raises, the call of the kernel raises; `after` gets the
    `CompiledKernel`, or None where some hook of Triton's kept it from being compiled."""

    def before(self, call: CompileCall) -> None: ...

    def after(self, call: CompileCall, kernel: Any, seconds: float) -> None: ...


OtherCompile = Callable[[Any], None]

_observers: list[Observer] = []
_others: list[OtherCompile] = []
_asked: set[tuple[int, str, str]] = set()
_lock = threading.Lock()
_local = threading.local()
_originals: dict[str, Any] = {}

# Options that `JITFunction.run` adds by itself to those of the call.
GIVEN_BY_RUN = frozenset({"debug", "instrumentation_mode", "fpsan_homomorphic_casts"})


def observe(observer: Observer) -> None:
    """Hears of every compile from now on; twice the same does nothing more."""
    with _lock:
        _hook()
        if observer not in _observers:
            _observers.append(observer)


def ignore(observer: Observer) -> None:
    with _lock:
        if observer in _observers:
            _observers.remove(observer)


def observe_others(act: OtherCompile) -> None:
    """Calls `act` with the source of every kernel that was compiled by `triton.compile` without a
    `JITFunction`, as `torch.compile` does with the kernels it generates."""
    from triton import knobs

    with _lock:
        _others.append(act)
        own: Any = knobs.compilation.listener
        if hasattr(own, "whet_listens"):
            return

        def listener(*, src: Any, cache_hit: bool, **rest: Any) -> None:
            if own is not None:
                own(src=src, cache_hit=cache_hit, **rest)
            if not cache_hit and not _was_asked(src):
                for heard in tuple(_others):
                    heard(src)

        listener.whet_listens = True  # type: ignore[attr-defined]
        knobs.compilation.listener = listener


def _was_asked(source: Any) -> bool:
    """Whether some `JITFunction` wants it; Triton's AsyncCompileMode compiles in other threads."""
    if not hasattr(source, "fn"):
        return False
    return _identity(source.fn, source.signature, source.constants) in _asked


def _identity(jit: Any, signature: Any, constants: Any) -> tuple[int, str, str]:
    return id(jit), str(signature), str(constants)


def ignore_others(act: OtherCompile) -> None:
    with _lock:
        if act in _others:
            _others.remove(act)


def _hook() -> None:
    from triton.runtime.jit import JITFunction

    if _originals:
        return
    kind: Any = JITFunction
    _originals["pack"], _originals["compile"] = kind._pack_args, kind._do_compile

    @wraps(kind._pack_args)
    def pack(self: Any, backend: Any, keywords: Any, bound: Any, special: Any, options: Any) -> Any:
        if _observers and not listening_now():
            _local.packed = self, (bound, special, options, set(keywords))
        return _originals["pack"](self, backend, keywords, bound, special, options)

    @wraps(kind._do_compile)
    def do_compile(
        self: Any,
        key: Any,
        signature: Any,
        device: Any,
        constexprs: Any,
        options: Any,
        attrs: Any,
        warmup: Any,
    ) -> Any:
        owner, packed = getattr(_local, "packed", None) or (None, None)
        _local.packed = None  # tensors are not to be held longer
        rest = key, signature, device, constexprs, options, attrs, warmup
        if not _observers:
            return _originals["compile"](self, *rest)
        if packed is None or owner is not self:
            packed = _unpacked(self, signature, constexprs, attrs, options)
        bound, special, passed, named = packed
        call = CompileCall(self, *rest, special, passed, bound, named)
        return _observed(call, rest)

    kind._pack_args, kind._do_compile = pack, do_compile


def _observed(call: CompileCall, rest: tuple[Any, ...]) -> Any:
    from time import perf_counter

    heard = list(_observers)
    for observer in heard:
        observer.before(call)
    start = perf_counter()
    _asked.add(_identity(call.jit, call.signature, call.constexprs))
    kernel = _originals["compile"](call.jit, *rest)
    seconds = perf_counter() - start
    for observer in heard:
        observer.after(call, kernel, seconds)
    return kernel


def _unpacked(
    jit: Any, signature: Any, constexprs: Any, attrs: Any, options: Any
) -> tuple[dict[str, Any], list[Any], dict[str, Any], set[str]]:
    """For whoever calls `_do_compile` without a call, as `JITFunction.preload` does."""
    values, special = {}, []
    for place, (name, kind) in enumerate(signature.items()):
        if kind == "constexpr":
            values[name] = constexprs.get((place,))
        divisible = any(list(one)[:1] == ["tt.divisibility"] for one in attrs.get((place,), ()))
        integer = kind in ("i32", "i64", "u64") or str(kind).startswith("*")
        special.append((kind, ("D" if divisible else "") if integer else None))
    passed = {n: v for n, v in options.__dict__.items() if n in ("num_warps", "num_stages")}
    return values, special, passed, set()
