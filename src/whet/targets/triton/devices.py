"""The GPUs of this host that a Triton kernel can be measured on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence


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
