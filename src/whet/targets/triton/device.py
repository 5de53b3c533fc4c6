"""The GPU at hand, as a `Device` and as limits for the compiler."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.core.timing import L2, Method
    from whet.core.workload import Device
    from whet.measure import Timer
    from whet.targets.triton.request import DeviceLimits


# Every program that uses whet waits for this module.


class NoGpuError(UsageError):
    """Triton has no driver to launch with; `why` says what is missing."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"{why}; run on a machine with a GPU. Without one, 'whet precompile' compiles the "
            "kernel for another machine's GPU, and TRITON_INTERPRET=1 runs it on CPU tensors, "
            "slowly and untuned"
        )
        self.why = why


def current_index() -> int:
    from triton.runtime.driver import driver

    try:
        index: int = driver.active.get_current_device()
    except Exception as error:
        raise NoGpuError(f"Triton finds no GPU ({_why_none(error)})") from None
    return index


def _why_none(error: Exception) -> str:
    """Triton only counts its drivers, and each of them asks torch."""
    torch = _torch()
    if torch is None:
        return "it needs torch, which is not installed"
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} is built without CUDA and ROCm"
    return str(error) if torch.cuda.is_available() else "torch sees none"


@cache
def timer(index: int, l2: L2, l2_bytes: int | None, graph: bool) -> Timer:
    """One for all tunings on a device: what it has found out about the device holds for all."""
    from whet.measure.gpu.timer import CudaTimer

    return CudaTimer(device=index, l2=l2, l2_bytes=l2_bytes, graph=graph)


def timer_made() -> bool:
    """Whether a timer of this process may have found out that it cannot measure as `method` says:
    without the memory for a cold L2, it changes over to a warm one."""
    made = getattr(timer, "cache_info", None)
    return made is None or made().currsize > 0


def method(index: int, l2: L2, l2_bytes: int | None, graph: bool) -> Method:
    """How `timer` would measure, without making one: that talks to the driver."""
    from whet.core.timing import Method
    from whet.measure.gpu.driver import compiles_ptx

    here = describe(index)
    whole = here.limits.l2_bytes or 0
    cleared = 0 if l2 == "warm" else whole if l2_bytes is None else l2_bytes
    # A driver that is only imagined would have its compiler, as real ones do.
    fresh = here.vendor == "nvidia" and (_imagined() is not None or compiles_ptx())
    return Method.on_gpu(cleared, whole, fresh=fresh, graph=graph)


def count() -> int:
    torch = _torch()
    return int(torch.cuda.device_count()) if torch is not None else 1


def capturing() -> bool:
    """Whether the current stream records a CUDA graph, in which nothing can be timed."""
    torch = _torch()
    if torch is None or not torch.cuda.is_available():
        return False
    return bool(torch.cuda.is_current_stream_capturing())


def default_options() -> Any:
    """What the compiler uses where a launch says nothing."""
    return _default_options(_target())


@cache
def _default_options(target: Any) -> Any:
    from triton.compiler import make_backend

    return make_backend(target).parse_options({})


@cache
def describe(index: int) -> Device:
    from whet.core.workload import Device, Limits

    imagined = _imagined()
    if imagined is not None:
        return imagined
    target = _target()
    properties = _properties(index)
    name, driver_version = _name(index, target)
    return Device(
        name=name,
        vendor="nvidia" if target.backend == "cuda" else "amd",
        architecture=f"sm_{target.arch}" if target.backend == "cuda" else str(target.arch),
        driver=driver_version,
        limits=Limits(
            shared_memory_bytes=properties.get("max_shared_mem"),
            registers=properties.get("max_num_regs"),
            threads=1024,
            multiprocessors=properties.get("multiprocessor_count"),
            l2_bytes=_l2_bytes(index),
        ),
    )


def limits(index: int) -> DeviceLimits:
    from whet.targets.triton.request import DeviceLimits

    device = describe(index)
    blackwell = device.vendor == "nvidia" and device.architecture.startswith("sm_10")
    return DeviceLimits(
        shared_bytes=device.limits.shared_memory_bytes,
        threads=device.limits.threads,
        tensor_memory=512 if blackwell else None,
    )


def timing_lock_path(index: int, folder: Path) -> Path:
    """One file for each physical GPU, however processes number them."""
    identity = describe(index).name
    torch = _torch()
    if torch is not None and torch.cuda.is_available():
        uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
        identity = f"{identity}-{uuid}-{index if uuid is None else ''}"
    return folder / f"gpu-{hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()}.lock"


def _imagined() -> Device | None:
    """What is compiled for where no device is at hand."""
    from triton.runtime.driver import driver

    found: Device | None = getattr(driver._active, "whet_device", None)
    return found


def _target() -> Any:
    from triton.runtime.driver import driver

    return driver.active.get_current_target()


def _properties(index: int) -> dict[str, Any]:
    from triton.runtime.driver import driver

    properties: dict[str, Any] = driver.active.utils.get_device_properties(index)
    return properties


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _name(index: int, target: Any) -> tuple[str, str]:
    torch = _torch()
    if torch is None or not torch.cuda.is_available():
        return f"{target.backend} {target.arch}", ""
    return str(torch.cuda.get_device_name(index)), str(
        torch.version.cuda or torch.version.hip or ""
    )


def _l2_bytes(index: int) -> int | None:
    torch = _torch()
    if torch is None or not torch.cuda.is_available():
        return None
    size = getattr(torch.cuda.get_device_properties(index), "L2_cache_size", None)
    return None if size is None else int(size)


def device_names() -> Sequence[str]:
    """By number, as torch counts those that this process sees."""
    try:
        import torch
    except ImportError:
        return ()
    return tuple(str(number) for number in range(torch.cuda.device_count()))


def device_environment(name: str) -> Mapping[str, str]:
    """What a process has in its environment to see this device alone; numbers are those of this
    process, which may itself see only some."""
    import torch

    variable = "HIP_VISIBLE_DEVICES" if torch.version.hip else "CUDA_VISIBLE_DEVICES"
    visible = [part.strip() for part in os.environ.get(variable, "").split(",") if part.strip()]
    number = int(name)
    return {variable: visible[number] if number < len(visible) else name}
