"""Triton on a machine without a GPU: a driver that says what would be there, and tensors that have
a shape, a dtype and an alignment but no memory."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from types import SimpleNamespace
from typing import Any, NoReturn

from whet.core.errors import UsageError
from whet.core.workload import Device
from whet.targets.triton.packed.architectures import Architecture

# Kernels keep what they know of a device under its number, so each architecture has one of its own,
# far from those of real devices.
_FIRST_INDEX = 1 << 16
_fresh = count(_FIRST_INDEX)
_indices: dict[str, int] = {}


class NoDriver:
    """Enough of Triton's driver to bind the arguments of a call. Nothing can be launched."""

    def __init__(self, architecture: Architecture, device: Device) -> None:
        self.whet_device = device
        self.utils = self
        self._target = architecture.target
        if architecture.name not in _indices:
            _indices[architecture.name] = next(_fresh)
        self._index = _indices[architecture.name]

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return self._index

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)  # which `without_memory` makes `meta`

    def get_device_properties(self, device: int) -> dict[str, Any]:
        limits = self.whet_device.limits
        return {
            "max_shared_mem": limits.shared_memory_bytes,
            "max_num_regs": limits.registers,
            "multiprocessor_count": limits.multiprocessors,
            "warpSize": self._target.warp_size,
        }


@contextmanager
def imagined(architecture: Architecture, device: Device | None = None) -> Iterator[None]:
    """Triton believes in a device of this architecture until the block ends."""
    from triton.runtime.driver import driver

    from whet.targets.triton import device as at_hand

    before = driver._active
    driver.set_active(NoDriver(architecture, device or architecture.device))
    at_hand.describe.cache_clear()
    try:
        yield
    finally:
        driver._active = before
        at_hand.describe.cache_clear()


class NoLaunchError(UsageError):
    """A kernel was launched where there is only something to compile for."""


@contextmanager
def loading(architecture: Architecture) -> Iterator[None]:
    """For running a file of kernels: as on such a device, but nothing can be launched on it."""
    from triton.runtime import autotuner as stock
    from triton.runtime.jit import JITFunction

    from whet.targets.triton.autotuner import Autotuner

    def refuse(kernel: Any, *args: Any, **keywords: Any) -> NoReturn:
        raise NoLaunchError(f"this machine has no {architecture.label} to launch a kernel on")

    kinds: list[Any] = [JITFunction, stock.Autotuner, Autotuner]
    own = [(kind, kind.run) for kind in kinds]
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401 - the file may ask it for a device as soon as it has imported it
    with imagined(architecture), without_memory(), torch_answers(architecture):
        for kind in kinds:
            kind.run = refuse
        try:
            yield
        finally:
            for kind, run in own:
                kind.run = run


@contextmanager
def torch_answers(architecture: Architecture) -> Iterator[None]:
    """What libraries ask torch about the device when they are imported, as far as the architecture
    tells; a property that it does not tell is an `AttributeError`."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    device = architecture.device
    maker = "NVIDIA" if device.vendor == "nvidia" else "AMD"
    known = SimpleNamespace(
        name=f"{maker} {(*architecture.products, architecture.name)[0].upper()}",
        major=architecture.capability[0],
        minor=architecture.capability[1],
        gcnArchName=architecture.name,
        warp_size=architecture.target.warp_size,
        shared_memory_per_block_optin=device.limits.shared_memory_bytes,
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda device=None: known.name,
        "get_device_capability": lambda device=None: architecture.capability,
        "get_device_properties": lambda device=None: known,
    }
    own = {name: getattr(torch.cuda, name) for name in answers}
    vars(torch.cuda).update(answers)
    try:
        yield
    finally:
        vars(torch.cuda).update(own)


def without_memory() -> AbstractContextManager[Any]:
    """What asks torch for a tensor on a GPU gets one on the `meta` device until the block ends."""
    if "torch" not in sys.modules:
        return nullcontext()
    import torch
    from torch.overrides import TorchFunctionMode

    meta = torch.device("meta")

    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return meta if value.type == "cuda" else value
        if isinstance(value, str) and value.partition(":")[0] == "cuda":
            return meta
        return value

    class OnMeta(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if function is torch.device:  # moved where it is used
                return function(*args, **(kwargs or {}))
            if function is torch.Tensor.cuda:
                return args[0].to(meta)
            named = {name: moved(value) for name, value in (kwargs or {}).items()}
            if named.get("pin_memory"):
                named["pin_memory"] = False
            return function(*map(moved, args), **named)

    return OnMeta()
