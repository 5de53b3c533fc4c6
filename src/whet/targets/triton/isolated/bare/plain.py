"""Which calls are plain, and their launches for a process without torch."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from whet.engine.settings import resolve_settings
from whet.measure import CudaTimer, RemoteBench
from whet.measure.gpu.driver import compiles_ptx
from whet.targets.triton.call import Call
from whet.targets.triton.isolated.bare.ipc_arguments import BareIpcCall, BareLaunch
from whet.targets.triton.isolated.bare.loader import BareLoader, bare_timer
from whet.targets.triton.isolated.executor import IpcCall
from whet.targets.triton.isolated.ipc_arguments import CannotIsolate, Tensor, Wrapped
from whet.targets.triton.isolated.launch import Launch
from whet.targets.triton.policy import settings_for
from whet.workers.session import OpenSession

PRELOAD = ("whet.measure.bench.executor", "whet.targets.triton.isolated.bare.loader")

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
