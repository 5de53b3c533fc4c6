"""What Triton is asked to compile, heard where it asks: no copy of its path is here.

`JITFunction.run` packs the arguments of a call whose binary is not in memory, and then calls its
own `_do_compile`, which finds the binary in the disk cache or compiles it. Both methods are wrapped
on the class, so that kernels are reached whoever made them and whenever; a call whose binary is in
memory passes through neither. Where a thread only asks what would be compiled, that is the end of
the call; else what is packed is put where Triton looks for it, and observers hear of the compile.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

from whet.engine.settings import resolve_settings

if TYPE_CHECKING:
    from whet.targets.triton.request import DeviceLimits, Request

# Requests for one kernel whose identity is remembered.
_REMEMBERED = 4096


@dataclass(frozen=True)
class CompileCall:
    """What `_do_compile` was asked for. `special` and `passed` are Triton's list of what is special
    about each argument and the options as they were passed; `values` are the arguments, and
    `named` those that were passed by name. Of what is only asked about these are not known."""

    jit: Any
    key: str
    signature: dict[str, Any]
    device: Any
    constexprs: dict[Any, Any]
    options: Any
    attrs: dict[Any, Any]
    warmup: bool
    special: Sequence[Any] = ()
    passed: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    named: Collection[str] = ()

    @property
    def target(self) -> Any:
        return self.jit.device_caches[self.device][2]

    def request(self, limits: DeviceLimits | None = None) -> Request:
        """Without `limits` nothing is checked early."""
        from whet.targets.triton.request import DeviceLimits, Request

        return Request(
            self.jit,
            self.signature,
            self.constexprs,
            self.attrs,
            dict(self.options.__dict__),
            self.target,
            limits or DeviceLimits(),
        )


class Observer:
    """Hears what is compiled, in the thread that compiles. What `before` and `before_library`
    raise, the call of the kernel raises."""

    def before(self, call: CompileCall) -> None:
        """Some `JITFunction` looks for its binary in the disk cache, or compiles it."""

    def after(self, call: CompileCall, kernel: Any, seconds: float) -> None:
        """It has its `CompiledKernel`, or None where some hook of Triton's kept it from that."""

    def other_compile(self, source: Any) -> None:
        """A kernel was compiled by `triton.compile` without a `JITFunction`, as `torch.compile`
        does with the kernels it generates."""

    def before_library(self, name: str) -> None:
        """Triton is about to start the C compiler."""


class _Heard(threading.local):
    """By thread: the kernel of which it is only `asked` what would be compiled, which others that
    call it meanwhile must not notice, and the answer; and the arguments of a call that is about to
    be compiled."""

    asked: Any = None
    captured: CompileCall | None = None
    packed: tuple[Any, Mapping[str, Any], Sequence[Any], Mapping[str, Any], set[str]] | None = None


_heard = _Heard()
_lock = threading.Lock()
_observers: list[Observer] = []
_asked: set[tuple[int, str, str]] = set()


def jit_function(fn: Any) -> Any:
    """The `JITFunction` under autotuners and heuristics."""
    from triton.runtime.jit import JITFunction

    while not isinstance(fn, JITFunction):
        fn = fn.fn
    return fn


@cache
def ready_to_fork(target: Any) -> None:
    """Finds out here what every compiler process would otherwise find out for itself.

    Triton's key hashes its shared library, and a backend's asks the assembler for its version;
    both are remembered for the life of a process, and forks inherit that.
    """
    from triton.compiler import make_backend
    from triton.runtime import cache as triton_cache

    key = getattr(triton_cache, "triton_key", None)
    if key is not None:
        key()
    make_backend(target).hash()


def compile_request(
    fn: Any, args: tuple[Any, ...], keywords: Mapping[str, Any], limits: DeviceLimits
) -> Request | None:
    """What `fn.run(*args, **keywords)` would compile; None where it has that in memory already."""
    found = identified_request(fn, args, keywords, limits)
    return None if found is None else found[0]


def identified_request(
    fn: Any, args: tuple[Any, ...], keywords: Mapping[str, Any], limits: DeviceLimits
) -> tuple[Request, str] | None:
    """The same with an identity: equal for requests that give the same binary in the same place,
    or fail in the same way."""
    jit = jit_function(fn)
    listen(jit)
    _heard.asked, _heard.captured = jit, None
    try:
        fn.run(*args, **{**keywords, "warmup": True})
    finally:
        captured, _heard.asked, _heard.captured = _heard.captured, None, None
    return None if captured is None else _identified(captured, limits)


def _identified(call: CompileCall, limits: DeviceLimits) -> tuple[Request, str]:
    """Triton's own key says what is special about this call of this kernel, so that the rest has
    to be put together only once."""
    from triton import knobs
    from triton.runtime.driver import driver

    target, hook = driver.active.get_current_target(), knobs.runtime.add_stages_inspection_hook
    key = (call.jit.cache_key, call.key, target, limits, knobs.cache.dir, hook)
    known: dict[Any, tuple[Request, str]] = call.jit._whet_requests
    if key not in known:
        if len(known) >= _REMEMBERED:
            known.clear()
        request = replace(call.request(limits), target=target)
        # Covers the kernel, all that it uses, and the values it is specialised for.
        text = f"{request.source().hash()} {request.options} {key[2:]}"
        known[key] = request, hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return known[key]


def listen(jit: Any) -> None:
    """From now on what is compiled for this kernel is first looked for among the packed ones."""
    _hook()
    if not hasattr(jit, "_whet_requests"):
        jit._whet_requests = {}
        jit._whet_packed = {}


def observe(observer: Observer) -> None:
    """From now on; twice the same does nothing more."""
    with _lock:
        _hook()
        _hook_others()
        _hook_libraries()
        if observer not in _observers:
            _observers.append(observer)


def ignore(observer: Observer) -> None:
    with _lock:
        if observer in _observers:
            _observers.remove(observer)


def _hook_others() -> None:
    from triton import knobs

    own: Any = knobs.compilation.listener
    if hasattr(own, "whet_listens"):
        return

    def listener(*, src: Any, cache_hit: bool, **rest: Any) -> None:
        if own is not None:
            own(src=src, cache_hit=cache_hit, **rest)
        if not cache_hit and not _was_asked(src):
            for observer in tuple(_observers):
                observer.other_compile(src)

    listener.whet_listens = True  # type: ignore[attr-defined]
    knobs.compilation.listener = listener


def _hook_libraries() -> None:
    from triton.runtime import build

    own: Any = build._build
    if hasattr(own, "whet_watches"):
        return

    def building(name: str, *args: Any, **keywords: Any) -> Any:
        for observer in tuple(_observers):
            observer.before_library(name)
        return own(name, *args, **keywords)

    building.whet_watches = True  # type: ignore[attr-defined]
    build._build = building


def _was_asked(source: Any) -> bool:
    """Whether some `JITFunction` wants it; Triton's AsyncCompileMode compiles in other threads."""
    if not hasattr(source, "fn"):
        return False
    return _identity(source.fn, source.signature, source.constants) in _asked


def _identity(jit: Any, signature: Any, constants: Any) -> tuple[int, str, str]:
    return id(jit), str(signature), str(constants)


def _hook() -> None:
    """Once; and again where somebody else has put methods of their own in the place of ours."""
    from triton.runtime.jit import JITFunction

    kind: Any = JITFunction
    if not hasattr(kind._do_compile, "whet_compiles"):
        kind._do_compile = _compiling(kind._do_compile)
    if hasattr(kind, "_pack_args") and not hasattr(kind._pack_args, "whet_packs"):
        kind._pack_args = _packing(kind._pack_args)


def _packing(own: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(own)
    def pack(self: Any, backend: Any, keywords: Any, bound: Any, special: Any, options: Any) -> Any:
        if _heard.asked is not self:
            if _observers:
                _heard.packed = self, bound, special, options, set(keywords)
            return own(self, backend, keywords, bound, special, options)
        # Takes longer than all else in a call that compiles nothing, so it is done once for each of
        # Triton's own keys for what is in memory.
        key, known = (backend, tuple(special), str(options)), self._whet_packed
        if key not in known:
            if len(known) >= _REMEMBERED:
                known.clear()
            known[key] = own(self, backend, keywords, bound, special, options)
        return known[key]

    pack.whet_packs = True  # type: ignore[attr-defined]
    return pack


def _compiling(own: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(own)
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
        asked = key, signature, device, constexprs, options, attrs, warmup
        if _heard.asked is self:
            _heard.captured = CompileCall(self, *asked)
            return None
        packed, _heard.packed = _heard.packed, None  # tensors are not to be held longer
        if hasattr(self, "_whet_requests") and _packed_kernels_are_set():
            from whet.targets.triton.packed.portable import serve

            serve(CompileCall(self, *asked).request)
        if not _observers:
            return own(self, *asked)
        if packed is None or packed[0] is not self:
            packed = self, *_unpacked(signature, constexprs, attrs, options)
        _, bound, special, passed, named = packed
        call = CompileCall(self, *asked, special, passed, bound, named)
        return _observed(call, lambda: own(self, *asked))

    do_compile.whet_compiles = True  # type: ignore[attr-defined]
    return do_compile


def _observed(call: CompileCall, compile_it: Callable[[], Any]) -> Any:
    heard = list(_observers)
    for observer in heard:
        observer.before(call)
    start = time.perf_counter()
    _asked.add(_identity(call.jit, call.signature, call.constexprs))
    kernel = compile_it()
    seconds = time.perf_counter() - start
    for observer in heard:
        observer.after(call, kernel, seconds)
    return kernel


def _unpacked(
    signature: Any, constexprs: Any, attrs: Any, options: Any
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


def _packed_kernels_are_set() -> bool:
    try:
        settings = resolve_settings().settings
    except Exception:  # which `serve` says once, and the call goes on
        return True
    return settings.binaries is not None or settings.bundle is not None
