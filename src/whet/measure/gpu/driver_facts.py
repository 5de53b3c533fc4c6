"""Which GPUs a host has, from the management library alone: no context is made on any."""

from __future__ import annotations

import ctypes
from typing import Any

from whet.measure.gpu.nvml import loaded_library

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
