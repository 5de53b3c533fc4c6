"""A call of a kernel and its configs, made ready to be measured in another process; or why not."""

from __future__ import annotations

import contextlib
import importlib.machinery
import inspect
import json
import pickle
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from whet.core.errors import TargetError
from whet.engine.settings import resolve_settings
from whet.measure import Timer
from whet.measure.bench.remote import RemoteBench
from whet.measure.gpu.driver import compiles_ptx
from whet.measure.gpu.timer import CudaTimer
from whet.targets.triton import device
from whet.targets.triton.call import Call
from whet.targets.triton.compiler.capture import jit_function
from whet.targets.triton.isolated.bare import BareIpcCall, BareLaunch, BareLoader, bare_timer
from whet.targets.triton.isolated.executor import IpcCall, Launch
from whet.targets.triton.isolated.ipc_arguments import CannotIsolate, Packer, Tensor, Wrapped
from whet.targets.triton.policy import settings_for, timing_of
from whet.workers.session import OpenSession

_PLAIN = (bool, int, float, str, type(None))


def launch_of(call: Call, config: Any, packer: Packer) -> Launch:
    """What this config of the call would launch. Compiles nothing that has been built, and loads
    nothing onto the device.

    Raises `CannotIsolate`.
    """
    jit = jit_function(call.tuner.fn)
    heard: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    thread = threading.get_ident()

    def hear(*args: Any, **keywords: Any) -> None:
        if threading.get_ident() == thread:
            heard.append((args, keywords))

    before = jit.pre_run_hooks
    # Another list, since other threads may be walking through this one.
    jit.pre_run_hooks = [*before, hear]
    try:
        kernel = call.tuner.fn.run(*call.args, **{**call.current(config), "warmup": True})
    finally:
        jit.pre_run_hooks = before
    kernel = kernel.result() if hasattr(kernel, "result") else kernel
    if "tt.int_to_ptr" in kernel.asm.get("ttir", ""):
        raise CannotIsolate(
            "the kernel dereferences addresses that it loads or receives as integers"
        )
    bound = _bound(jit, *heard[-1])
    source = kernel.src
    return Launch(
        hash=kernel.hash,
        files={name: str(path) for name, path in kernel.metadata_group.items()},
        name=source.name,
        signature=dict(source.signature),
        constants=tuple(source.constants),
        attrs=dict(source.attrs),
        arg_names=tuple(jit.arg_names),
        grid=_grid(call.keywords["grid"], bound),
        values=tuple(_value(packer, bound[name], kind) for name, kind in source.signature.items()),
        kwargs={name: _constant(value) for name, value in config.all_kwargs().items()},
        pre_hook=config.pre_hook,
    )


def _bound(jit: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter by name, in order: what Triton hands to a grid."""
    own = {name: value for name, value in keywords.items() if name in jit.arg_names}
    found: inspect.BoundArguments = jit.signature.bind(*args, **own)
    found.apply_defaults()
    return dict(found.arguments)


def _grid(grid: Any, bound: dict[str, Any]) -> tuple[int, int, int]:
    sizes = tuple(grid(bound)) if callable(grid) else tuple(grid)
    x, y, z = (*(int(size) for size in sizes), 1, 1, 1)[:3]
    return x, y, z


def _value(packer: Packer, value: Any, kind: Any) -> Any:
    if kind == "constexpr":
        return _constant(value)
    if isinstance(kind, tuple | list) and isinstance(value, tuple | list):
        return tuple(_value(packer, *pair) for pair in zip(value, kind, strict=True))
    return packer.find(value)


def _constant(value: Any) -> Any:
    """Compiled into the kernel, so that launchers skip it; for hooks, as far as it can be sent."""
    if isinstance(value, _PLAIN):
        return value
    kinds = {kind.__name__ for kind in type(value).__mro__}
    if kinds & {"dtype", "constexpr"}:
        with contextlib.suppress(Exception):
            pickle.dumps(value)
            return value
    return None


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


PRELOAD = ("whet.measure.bench.executor", "whet.targets.triton.isolated.bare")

WARP = 32
# Beyond this a launch has to ask for another division of the cache.
MOST_SHARED_BYTES = 228 << 10
MOST_TENSOR_MEMORY = 512

# As Triton's launcher reads them; a bool is a byte there.
_INTEGERS = {
    "i1": "<b",
    "i8": "<b",
    "i16": "<h",
    "i32": "<i",
    "i64": "<q",
    "u1": "<B",
    "u8": "<B",
    "u16": "<H",
    "u32": "<I",
    "u64": "<Q",
}
_FLOATS = {"fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d"}

# Memory of a kernel's own: none, which it does not ask for.
_SCRATCH = (b"", b"")


class NotPlain(CannotIsolate):
    """This launch takes more than the driver: only Triton's launcher will do."""


def is_plain(call: Call, configs: Iterable[Any], ipc_call: IpcCall) -> bool:
    """Whether nothing but launches is to be run in the other process, as far as is known before
    anything is built."""
    tuner = call.tuner
    if call.checks or call.has_hooks or tuner.whet_method() is None:
        return False
    if ipc_call.pre_hook is not None or ipc_call.post_hook is not None:
        return False
    if tuner.use_cuda_graph or resolve_settings().settings.cuda_graph:
        return False
    if any(config.pre_hook is not None or config.num_ctas != 1 for config in configs):
        return False
    values = (*ipc_call.args, *ipc_call.keywords.values())
    if any(isinstance(value, tuple | Wrapped) for value in values):
        return False
    return (
        _on_cuda()
        and compiles_ptx()
        and {block.device for block in ipc_call.ipc_arguments.blocks} <= {f"cuda:{ipc_call.device}"}
    )


def bare_bench(
    ipc_call: IpcCall, tuner: Any, open_session: OpenSession | None = None
) -> RemoteBench:
    """A bench for the plain call that this is the ipc_call of."""
    places = tuple((view.block, view.offset) for view in ipc_call.ipc_arguments.views)
    settings = settings_for(tuner)
    make_timer: partial[CudaTimer] = partial(
        bare_timer, ipc_call.device, settings.l2, settings.l2_bytes
    )
    return RemoteBench(
        partial(BareLoader, BareIpcCall(ipc_call.device, ipc_call.ipc_arguments.blocks, places)),
        make_timer,
        check_each=False,
        preload=PRELOAD,
        open_session=open_session,
    )


def bare_launch(launch: Launch) -> BareLaunch:
    """The same launch for a process that has no Triton. Raises `NotPlain`."""
    metadata = json.loads(Path(_file(launch, ".json")).read_text())
    _refuse_special(metadata)
    parameters = tuple(
        _parameter(kind, value)
        for kind, value in zip(launch.signature.values(), launch.values, strict=True)
        if kind != "constexpr"
    )
    return BareLaunch(
        cubin=_file(launch, ".cubin"),
        name=metadata["name"],
        grid=launch.grid,
        threads=WARP * metadata["num_warps"],
        shared_bytes=metadata["shared"],
        parameters=(*parameters, *_SCRATCH),
    )


def prepare_launcher(call: Call, config: Any) -> None:
    """Triton makes a launcher, in C, for the first launch of a call; made here and now, while the
    other process gets ready, nobody waits for it in the end."""
    from triton.runtime.driver import driver

    with contextlib.suppress(Exception):
        kernel = call.tuner.fn.run(*call.args, **{**call.current(config), "warmup": True})
        kernel = kernel.result() if hasattr(kernel, "result") else kernel
        driver.active.launcher_cls(kernel.src, kernel.metadata)


def _on_cuda() -> bool:
    from triton.runtime.driver import driver

    return bool(driver.active.get_current_target().backend == "cuda")


def _file(launch: Launch, ending: str) -> str:
    for name, path in launch.files.items():
        if name.endswith(ending):
            return path
    raise NotPlain(f"the compiled kernel has no {ending} file")


def _refuse_special(metadata: Mapping[str, Any]) -> None:
    ctas = metadata.get("num_ctas", 1)
    clusters = {ctas, *metadata.get("cluster_dims", ())} != {1}
    wanted = {
        "another device": metadata.get("target", {}).get("backend") != "cuda",
        "a different warp size": metadata.get("target", {}).get("warp_size") != WARP,
        "clusters": clusters,
        "a cooperative grid": metadata.get("launch_cooperative_grid"),
        "a dependent launch": metadata.get("launch_pdl"),
        "global scratch memory": metadata.get("global_scratch_size"),
        "profiling scratch memory": metadata.get("profile_scratch_size"),
        "instrumentation": metadata.get("instrumentation_mode"),
        "descriptors": metadata.get("tensordesc_meta"),
        "more shared memory than the default limit": metadata["shared"] > MOST_SHARED_BYTES,
        "tensor memory": (metadata.get("tmem_size") or 0) > MOST_TENSOR_MEMORY,
    }
    for what, needed in wanted.items():
        if needed:
            raise NotPlain(f"the kernel needs {what}")


def _parameter(kind: Any, value: Any) -> bytes | int:
    if isinstance(value, Tensor) and isinstance(kind, str) and kind.startswith("*"):
        return value.number
    if isinstance(kind, str) and isinstance(value, int | float):
        with contextlib.suppress(struct.error, OverflowError):
            if kind == "bf16":
                return struct.pack("<f", value)[2:]
            if kind in _FLOATS:
                return struct.pack(_FLOATS[kind], value)
            if kind in _INTEGERS and isinstance(value, int):
                return struct.pack(_INTEGERS[kind], value)
    raise NotPlain(f"an argument of type {type(value).__qualname__} is passed as {kind}")
