"""Where a callable runs: what `device=` says, checked against what this process has."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from whet.autotuner.errors import ArgumentError

_HOST = re.compile(r"cpu(:\d+)?")
_CUDA = re.compile(r"cuda(?::(\d+))?")


def cuda_device(device: str | None, values: Sequence[Any]) -> Any:
    """The CUDA device to time a callable on, or None for the host's clock.

    `device` is `cpu`, `cuda`, `cuda:1` or a GPU's name as torch gives it. It must be here, and the
    CUDA tensors among `values` must be on it: what is measured elsewhere would be cached under a
    wrong name. Without `device` the tensors decide, and without tensors whether this process uses
    CUDA already, since they may be hidden in a closure. torch is imported only if a GPU is named.
    """
    torch = sys.modules.get("torch")
    if device is None:
        return None if torch is None else _in_use(torch, values)
    if _HOST.fullmatch(device):
        found = None if torch is None else _tensor_device(torch, values)
        if found is not None:
            raise _elsewhere(device, found)
        return None
    named = _CUDA.fullmatch(device)
    torch, why = _torch_with_cuda()
    if torch is None:
        if named is None:
            raise _unknown(device, ["cpu"])
        raise ArgumentError(
            f"cannot use device='{device}': {why}; omit device=, or give device='cpu' to time "
            "the callable on the host"
        )
    count = torch.cuda.device_count()
    if named is None:
        names = [torch.cuda.get_device_name(index) for index in range(count)]
        if device not in names:
            raise _unknown(device, ["cpu", *_indexed(count), *dict.fromkeys(names)])
        allowed = [index for index, name in enumerate(names) if name == device]
    elif named[1] is None:
        allowed = list(range(count))
    elif int(named[1]) < count:
        allowed = [int(named[1])]
    else:
        raise _unknown(device, ["cpu", *_indexed(count)])
    return _among(torch, device, allowed, values)


def _in_use(torch: Any, values: Iterable[Any]) -> Any:
    if not torch.cuda.is_available():
        return None
    found = _tensor_device(torch, values)
    if found is None and torch.cuda.is_initialized():
        return torch.cuda.current_device()
    return found


def _among(torch: Any, device: str, allowed: Sequence[int], values: Sequence[Any]) -> Any:
    found = _tensor_device(torch, values)
    if found is not None:
        if found.index not in allowed:
            raise _elsewhere(device, found)
        return found
    current = torch.cuda.current_device()
    return current if current in allowed else allowed[0]


def _torch_with_cuda() -> tuple[Any, str]:
    """torch, or None and what is missing."""
    try:
        torch: Any = import_module("torch")
    except ImportError:
        return None, "torch is not installed"
    if torch.cuda.is_available():
        return torch, ""
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return None, f"torch {torch.__version__} is built without CUDA"
    return None, "torch sees no GPU"


def _tensor_device(torch: Any, values: Iterable[Any]) -> Any:
    """The device of the first CUDA tensor, also inside lists, tuples and dictionaries."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_cuda:
                return value.device
        elif isinstance(value, list | tuple | dict):
            inner = value.values() if isinstance(value, dict) else value
            device = _tensor_device(torch, inner)
            if device is not None:
                return device
    return None


def _indexed(count: int) -> list[str]:
    return [f"cuda:{index}" for index in range(count)]


def _unknown(device: str, valid: Sequence[str]) -> ArgumentError:
    return ArgumentError(f"there is no device '{device}'; valid: {', '.join(valid)}")


def _elsewhere(device: str, found: Any) -> ArgumentError:
    return ArgumentError(
        f"device='{device}', but a tensor argument is on {found}; give device='{found}' or move it"
    )
