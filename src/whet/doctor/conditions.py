"""Conditions under which torch silently does less than a mode's name says."""

from __future__ import annotations

from typing import Any

from whet.doctor.subject import Patient, device_of

_TENSOR_CORES_FOR_FLOAT32 = 8  # the major compute capability that brought TF32


def conditions(subject: Patient) -> list[str]:
    """A line for each that holds here; nothing is wrong with the model."""
    gpu = device_of(subject)
    return _on_a_cpu() if gpu is None else [*_too_small(gpu), *_full_float32(subject, gpu)]


def _on_a_cpu() -> list[str]:
    import torch._inductor.config as config

    if getattr(config, "freezing", True):
        return []
    return [
        "max-autotune does not tune matrix products on a CPU unless "
        "torch._inductor.config.freezing is set"
    ]


def _too_small(gpu: int) -> list[str]:
    from torch._inductor import utils

    is_big_gpu: Any = getattr(utils, "is_big_gpu", None)
    if is_big_gpu is None or is_big_gpu(gpu):
        return []
    return [
        "max-autotune does not tune matrix products on this GPU: it has too few multiprocessors"
    ]


def _full_float32(subject: Patient, gpu: int) -> list[str]:
    import torch

    values = [*subject.calls[0].named.values(), *subject.parameters]
    has_float32 = any(getattr(value, "dtype", None) == torch.float32 for value in values)
    able = torch.cuda.get_device_capability(gpu)[0] >= _TENSOR_CORES_FOR_FLOAT32
    if not has_float32 or not able or torch.get_float32_matmul_precision() != "highest":
        return []
    return [
        "products of float32 matrices do not use tensor cores; where their precision is not needed "
        "use torch.set_float32_matmul_precision('high')"
    ]
