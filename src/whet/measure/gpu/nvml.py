"""What NVIDIA's management library knows: which GPUs a host has, why the clock of one is held back,
who else uses it. No context is made on any."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from whet.workers import reaper

# Bits of the reasons for which a clock is held back. Being idle, or set so by a person, is none.
_REASONS = {
    0x0004: "power cap",
    0x0008: "hardware slowdown",
    0x0020: "heat",
    0x0040: "thermal slowdown",
    0x0080: "power brake",
}
_MOST_PROCESSES = 64


@dataclass(frozen=True)
class Health:
    """`others` are processes that have the device open beside this one and its kin; numbers may be
    those of another namespace."""

    held_back_by: tuple[str, ...] = ()
    others: tuple[int, ...] = ()


class _GpuProcess(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """One device, by its PCI bus id; `find` gives None where the library or the device is not."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle

    @classmethod
    def find(cls, bus_id: str) -> Nvml | None:
        library = loaded_library()
        handle = ctypes.c_void_p()
        if library is None:
            return None
        found = library.nvmlDeviceGetHandleByPciBusId_v2(bus_id.encode(), ctypes.byref(handle))
        return cls(library, handle) if found == 0 else None

    def health(self) -> Health:
        return Health(self._held_back_by(), self._others())

    def _held_back_by(self) -> tuple[str, ...]:
        bits = ctypes.c_ulonglong()
        failed = self._library.nvmlDeviceGetCurrentClocksThrottleReasons(
            self._handle, ctypes.byref(bits)
        )
        if failed:
            return ()
        return tuple(text for bit, text in _REASONS.items() if bits.value & bit)

    def _others(self) -> tuple[int, ...]:
        count = ctypes.c_uint(_MOST_PROCESSES)
        listed = (_GpuProcess * _MOST_PROCESSES)()
        failed = self._library.nvmlDeviceGetComputeRunningProcesses_v3(
            self._handle, ctypes.byref(count), listed
        )
        if failed:
            return ()
        return strangers([listed[i].pid for i in range(count.value)])


def strangers(pids: Sequence[int]) -> tuple[int, ...]:
    """Those that are neither this process nor of its kin: the tuner that a measuring process works
    for, or a measuring process that works for this one."""
    if os.getpid() in pids:
        return tuple(pid for pid in pids if not _is_kin(pid))
    # In a container numbers differ: one of them is this process, and another the tuner it is for.
    return tuple(pids[2 if reaper.MARKER in os.environ else 1 :])


def _is_kin(pid: int) -> bool:
    return pid in (os.getpid(), os.getppid()) or _parent(pid) == os.getpid()


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


@cache
def loaded_library() -> Any:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


_TEXT_BYTES = 96


def device_count() -> int:
    """All GPUs of the host, whatever this process may see of them; 0 where that is not known."""
    nvml, count = loaded_library(), ctypes.c_uint()
    if nvml is None or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return 0
    return count.value


def installed_gpu(visible: str | None) -> tuple[str, str]:
    """Name and driver of the first visible GPU, by what is in `CUDA_VISIBLE_DEVICES`; empty where
    there is none."""
    nvml, handle = loaded_library(), ctypes.c_void_p()
    first = "0" if visible is None else visible.partition(",")[0].strip()
    if nvml is None or not first or first == "-1":
        return "", ""
    if first.isdigit():
        found = nvml.nvmlDeviceGetHandleByIndex_v2(int(first), ctypes.byref(handle))
    else:
        found = nvml.nvmlDeviceGetHandleByUUID(first.encode(), ctypes.byref(handle))
    if found != 0:
        return "", ""
    return (
        _text(lambda text: nvml.nvmlDeviceGetName(handle, text, _TEXT_BYTES)),
        _text(lambda text: nvml.nvmlSystemGetDriverVersion(text, _TEXT_BYTES)),
    )


def _text(ask: Any) -> str:
    buffer = ctypes.create_string_buffer(_TEXT_BYTES)
    return buffer.value.decode(errors="replace") if ask(buffer) == 0 else ""
