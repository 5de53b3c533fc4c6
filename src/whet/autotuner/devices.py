"""Where a callable runs: what `device=` says, checked against what this process has."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from whet.autotuner.errors import ArgumentError

_HOST = re.compile(r"cpu(:\d+)?")
_CUDA = re.compile(r"cuda(?::(\d+))?")


@dataclass(frozen=True)
class Place:
    """Where a callable runs: `gpu` is the index of the device whose clock times it, None for the
    host's. `wait` returns when what the callable has queued has ended."""

    gpu: int | None
    wait: Callable[[], object]

    def current(self) -> AbstractContextManager[object]:
        """Makes the GPU the current one."""
        if self.gpu is None:
            return nullcontext()
        device: AbstractContextManager[object] = sys.modules["torch"].cuda.device(self.gpu)
        return device


def find_place(device: str | None, kernel_fn: Callable[..., Any], values: Sequence[Any]) -> Place:
    """The place that `device` names: `cpu`, `cuda`, `cuda:1` or a GPU's name as torch gives it.

    It must be here, and the CUDA tensors among `values` must be on it: what is measured elsewhere
    would be cached under a wrong name. Without `device` the tensors decide, the callable's own
    included. Without any, the host's clock is right for every callable, as long as it waits for
    the GPU that the process may use. torch is imported only if a GPU is named.
    """
    if device is not None and _HOST.fullmatch(device):
        _refuse_tensors(device, values)
        return Place(None, _nothing)
    if device is not None:
        return _on_gpu(_named_gpu(device, kernel_fn, values))
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        found = _tensor_device(torch, [*values, *_captured(torch, kernel_fn)])
        if found is not None:
            return _on_gpu(found.index)
    return Place(None, _wait_for_cuda)


def _on_gpu(index: int) -> Place:
    return Place(index, partial(sys.modules["torch"].cuda.synchronize, index))


def _wait_for_cuda() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _nothing() -> None:
    pass


def _captured(torch: Any, kernel_fn: Callable[..., Any]) -> list[Any]:
    """The tensors that a function uses from around it."""
    try:
        found = inspect.getclosurevars(kernel_fn)
    except (TypeError, ValueError):  # another kind of callable, or a variable without a value
        return []
    around = [*found.nonlocals.values(), *found.globals.values()]
    return [value for value in around if isinstance(value, torch.Tensor)]


def _refuse_tensors(device: str, values: Sequence[Any]) -> None:
    torch = sys.modules.get("torch")
    found = None if torch is None else _tensor_device(torch, values)
    if found is not None:
        raise _elsewhere(device, found)


def _named_gpu(device: str, kernel_fn: Callable[..., Any], values: Sequence[Any]) -> int:
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
    found = _tensor_device(torch, values)
    if found is not None and found.index not in allowed:
        raise _elsewhere(device, found)
    found = found or _tensor_device(torch, _captured(torch, kernel_fn))
    likely: int = torch.cuda.current_device() if found is None else found.index
    return likely if likely in allowed else allowed[0]


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
