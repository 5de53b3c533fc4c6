"""What Triton would compile for a call, without compiling it.

`JITFunction.run` binds, specialises and packs the arguments, and then calls its own `_do_compile`.
That is where we listen: the same code path in every version, and no copy of it here.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from whet.targets.triton.compile import DeviceLimits, Request

_local = threading.local()


@dataclass(frozen=True)
class _Captured:
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
def ready_to_fork() -> None:
    """Finds out here what every compiler process would otherwise find out for itself.

    Triton's key hashes its shared library, and a backend's asks the assembler for its version;
    both are remembered for the life of a process, and forks inherit that.
    """
    from triton.compiler import make_backend
    from triton.runtime import cache as triton_cache
    from triton.runtime.driver import driver

    key = getattr(triton_cache, "triton_key", None)
    if key is not None:
        key()
    make_backend(driver.active.get_current_target()).hash()


def compile_request(
    fn: Any, args: tuple[Any, ...], keywords: Mapping[str, Any], limits: DeviceLimits
) -> Request | None:
    """What `fn.run(*args, **keywords)` would compile; None where it has that in memory already."""
    from triton.runtime.driver import driver

    jit = jit_function(fn)
    _listen(jit)
    _local.captured = None
    _local.listening = True
    try:
        fn.run(*args, **{**keywords, "warmup": True})
    finally:
        _local.listening = False
    captured: _Captured | None = _local.captured
    if captured is None:
        return None
    return Request(
        fn=jit,
        signature=captured.signature,
        constexprs=captured.constexprs,
        attrs=captured.attrs,
        options=dict(captured.options.__dict__),
        target=driver.active.get_current_target(),
        limits=limits,
    )


def _listen(jit: Any) -> None:
    """Other threads that call the kernel meanwhile must not notice: only ours is listened to."""
    if getattr(jit, "_whet_listens", False):
        return
    compile_it = jit._do_compile

    def listening(
        key: Any,
        signature: Any,
        device: Any,
        constexprs: Any,
        options: Any,
        attrs: Any,
        warmup: Any,
    ) -> Any:
        if not getattr(_local, "listening", False):
            return compile_it(key, signature, device, constexprs, options, attrs, warmup)
        _local.captured = _Captured(signature, constexprs, options, attrs)
        return None

    jit._do_compile = listening
    jit._whet_listens = True
