"""A call of a kernel, made ready to be measured in another process; or why it cannot be."""

from __future__ import annotations

import importlib.machinery
import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from whet.core.errors import TargetError
from whet.measure import Timer
from whet.targets.triton import device
from whet.targets.triton.call import Call
from whet.targets.triton.compiler.capture import jit_function
from whet.targets.triton.isolated.executor import IpcCall
from whet.targets.triton.isolated.ipc_arguments import CannotIsolate, Packer
from whet.targets.triton.policy import timing_of
from whet.workers.session import OpenSession


@dataclass(frozen=True)
class Elsewhere:
    """Another device, on which `open_session` starts processes that see it alone; `remote` where
    it is another machine's, and `same` where it is the one that the arguments are on."""

    open_session: OpenSession
    remote: bool
    same: bool = False


def ipc_call_of(
    call: Call,
    configs: Iterable[Any],
    packer: Packer,
    through_host: bool,
    elsewhere: Elsewhere | None = None,
) -> IpcCall:
    """`through_host` copies device memory through the host's; so does a driver that does not
    share this memory, and so it is done for another device. Raises `CannotIsolate`."""
    from triton import knobs

    tuner = call.tuner
    pre_hook, post_hook = _own_hook(tuner, "pre_hook"), _own_hook(tuner, "post_hook")
    for hook in (pre_hook, post_hook, *(config.pre_hook for config in configs)):
        if hook is not None:
            check_hook(hook)
    if jit_function(tuner.fn).pre_run_hooks:
        raise CannotIsolate("the kernel has its own hooks (add_pre_run_hook); remove them")
    keywords = {n: v for n, v in call.keywords.items() if n not in ("grid", "warmup")}
    args = tuple(packer.add(value) for value in call.args)
    named = {name: packer.add(value) for name, value in keywords.items()}
    found = _expected(call)
    expected = None if found is None else {n: packer.add(value) for n, value in found.items()}
    if elsewhere is None:
        index, sent = device.current_index(), packer.ipc_arguments(through_host)
    else:
        far = through_host or not elsewhere.same
        index = 0
        sent = packer.ipc_arguments(far, carried=elsewhere.remote).on_only_device()
    return IpcCall(
        device=index,
        ipc_arguments=sent,
        arg_names=tuple(tuner.arg_names),
        args=args,
        keywords=named,
        reset_to_zero=tuple(tuner.reset_to_zero),
        restore_value=tuple(tuner.restore_value),
        pre_hook=pre_hook,
        post_hook=post_hook,
        expected=expected,
        agree=call.gate is not None and expected is None,
        bits=call.bits is not None,
        cache_dir="" if elsewhere is not None and elsewhere.remote else str(knobs.cache.dir or ""),
    )


def timer_of(tuner: Any) -> Callable[[], Timer]:
    """What makes the kernel's timer in another process."""
    if tuner.whet_method() is None:
        make: Callable[[], Timer] = _sendable(tuner.whet_timer, "the kernel's own timer")
        return make
    return partial(device.timer, *timing_of(tuner))


def _expected(call: Call) -> Mapping[str, Any] | None:
    """What a check function says, which is asked here: it may be anybody's closure."""
    if call.gate is None:
        return None
    try:
        return call.gate.expected(call.named)
    except TargetError:
        raise
    except Exception as error:
        text = f"the check function failed ({type(error).__name__}: {error})"
        raise CannotIsolate(text) from None


def check_hook(hook: Any) -> None:
    name = getattr(hook, "__qualname__", type(hook).__qualname__)
    _sendable(hook, f"the hook '{name}'")


def _own_hook(tuner: Any, name: str) -> Any:
    """The user's; Triton's own, which reset and restore, are made anew there."""
    hook = getattr(tuner, name)
    ours = getattr(hook, "__module__", "") == "triton.runtime.autotuner"
    return None if ours and not getattr(tuner, f"user_defined_{name}") else hook


def _sendable(thing: Any, what: str) -> Any:
    remedy = "define it in a module that can be imported"
    try:
        packed = pickle.dumps(thing, protocol=5)
    except Exception as error:
        raise CannotIsolate(f"{what} cannot be sent ({error}); {remedy}") from None
    home = str(getattr(thing, "__module__", type(thing).__module__))
    if b"__main__" in packed or not _importable(home):
        raise CannotIsolate(f"{what} exists in this process only; {remedy}")
    return thing


def _importable(module: str) -> bool:
    top = module.partition(".")[0]
    found = importlib.machinery.BuiltinImporter.find_spec(top)
    return (found or importlib.machinery.PathFinder.find_spec(top)) is not None
