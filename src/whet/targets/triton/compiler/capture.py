"""What Triton would compile for a call, without compiling it.

`JITFunction.run` binds, specialises and packs the arguments, and then calls its own `_do_compile`.
That is where we listen: the same code path in every version, and no copy of it here.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from whet.engine.settings import resolve_settings

if TYPE_CHECKING:
    from whet.targets.triton.request import DeviceLimits, Request

_local = threading.local()


# Requests for one kernel whose identity is remembered.
_REMEMBERED = 4096


class _Captured(NamedTuple):
    key: str
    signature: dict[str, Any]
    constexprs: dict[Any, Any]
    options: Any
    attrs: dict[Any, Any]


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
    _local.captured = None
    _local.listening = True
    try:
        fn.run(*args, **{**keywords, "warmup": True})
    finally:
        _local.listening = False
    captured: _Captured | None = _local.captured
    return None if captured is None else _identified(jit, captured, limits)


def _identified(jit: Any, captured: _Captured, limits: DeviceLimits) -> tuple[Request, str]:
    """Triton's own key says what is special about this call of this kernel, so that the rest has
    to be put together only once."""
    from triton import knobs
    from triton.runtime.driver import driver

    target, hook = driver.active.get_current_target(), knobs.runtime.add_stages_inspection_hook
    key = (jit.cache_key, captured.key, target, limits, knobs.cache.dir, hook)
    known: dict[Any, tuple[Request, str]] = jit._whet_requests
    if key not in known:
        if len(known) >= _REMEMBERED:
            known.clear()
        request = _request(
            jit,
            captured.signature,
            captured.constexprs,
            captured.attrs,
            captured.options,
            target,
            limits,
        )
        text = f"{_source_hash(request)} {request.options} {key[2:]}"
        known[key] = request, hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return known[key]


def _request(
    jit: Any,
    signature: dict[str, Any],
    constexprs: dict[Any, Any],
    attrs: dict[Any, Any],
    options: Any,
    target: Any,
    limits: DeviceLimits | None = None,
) -> Request:
    """Without `limits` nothing is checked early."""
    from whet.targets.triton.request import DeviceLimits, Request

    known = limits or DeviceLimits()
    return Request(jit, signature, constexprs, attrs, dict(options.__dict__), target, known)


def _source_hash(request: Request) -> str:
    """Covers the kernel, all that it uses, and the values it is specialised for."""
    from triton.compiler import ASTSource

    source = ASTSource(request.fn, request.signature, request.constexprs, request.attrs)
    return str(source.hash())


def listening_now() -> bool:
    """Whether this thread only asks what would be compiled."""
    return bool(getattr(_local, "listening", False))


def listen(jit: Any) -> None:
    """From now on `identified_request` hears what would be compiled, and what is compiled is first
    looked for among the packed kernels.

    Other threads that call the kernel meanwhile must not notice: only ours is listened to.
    """
    if getattr(jit, "_whet_listens", False):
        return
    compile_it = _method(jit, "_do_compile")
    pack = _method(jit, "_pack_args")

    def listening(
        key: Any,
        signature: Any,
        device: Any,
        constexprs: Any,
        options: Any,
        attrs: Any,
        warmup: Any,
    ) -> Any:
        if not listening_now():
            if _packed_kernels_are_set():
                from whet.targets.triton.packed.portable import serve

                target = jit.device_caches[device][2]
                serve(lambda: _request(jit, signature, constexprs, attrs, options, target))
            return compile_it(key, signature, device, constexprs, options, attrs, warmup)
        _local.captured = _Captured(key, signature, constexprs, options, attrs)
        return None

    packed: dict[Any, Any] = {}

    def packing(backend: Any, keywords: Any, bound: Any, special: Any, options: Any) -> Any:
        """Takes longer than all else in a call that compiles nothing, so it is done once."""
        if not listening_now():
            return pack(backend, keywords, bound, special, options)
        key = (backend, tuple(special), str(options))  # Triton's own key for what is in memory
        if key not in packed:
            if len(packed) >= _REMEMBERED:
                packed.clear()
            packed[key] = pack(backend, keywords, bound, special, options)
        return packed[key]

    if hasattr(jit, "_pack_args"):
        jit._pack_args = packing
    jit._do_compile = listening
    jit._whet_requests = {}
    jit._whet_listens = True


def _method(jit: Any, name: str) -> Callable[..., Any]:
    """The instance's own, else what its class has when it is called: that may change."""
    own = vars(jit).get(name)

    def method(*args: Any) -> Any:
        return getattr(type(jit), name)(jit, *args) if own is None else own(*args)

    return method


def _packed_kernels_are_set() -> bool:
    try:
        settings = resolve_settings().settings
    except Exception:  # which `serve` says once, and the call goes on
        return True
    return settings.binaries is not None or settings.bundle is not None
