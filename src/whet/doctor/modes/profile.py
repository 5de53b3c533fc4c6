"""Where the time of a step goes: launches, the device's part, the host's part, each kernel."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from whet.core.config import Value

STEPS = 10
_KERNELS = 12
_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "hipLaunchKernel")


@dataclass(frozen=True)
class KernelTime:
    """Of one step."""

    name: str
    calls: float
    ns: float


def profiled(repeat: Callable[[int], None], gpu: bool) -> dict[str, Value]:
    """`repeat` runs the steps and waits for the device. The profiler slows the host down, so that
    only counts and the device's times are taken from it."""
    taken = _taken(repeat, STEPS, gpu)
    events = list(taken.events())
    kernels = _device_kernels(events) if gpu else _host_kernels(taken)
    said: dict[str, Value] = {
        "kernels": json.dumps([[one.name, one.calls, one.ns] for one in kernels[:_KERNELS]])
    }
    if gpu:
        launched = [one for one in events if one.name.startswith(_LAUNCHES)]
        said["launches"] = len(launched) / STEPS
        said["device_kernels"] = sum(one.calls for one in kernels)
        said["device_ns"] = sum(one.ns for one in kernels)
    return said


def _taken(repeat: Callable[[int], None], steps: int, gpu: bool, **more: Any) -> Any:
    """The first profile of a process starts the profiler and may miss the first kernels."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    with profile(activities=kinds):
        repeat(1)
    with profile(activities=kinds, **more) as taken:
        repeat(steps)
    return taken


def _device_kernels(events: list[Any]) -> list[KernelTime]:
    from torch.autograd import DeviceType

    times: dict[str, list[float]] = {}
    for one in events:
        if one.device_type == DeviceType.CUDA and not getattr(one, "is_user_annotation", False):
            times.setdefault(one.name, []).append(one.time_range.elapsed_us() * 1e3)
    return _ranked({name: (len(taken), sum(taken)) for name, taken in times.items()})


def _host_kernels(taken: Any) -> list[KernelTime]:
    """On a CPU an operation is its own kernel; what Inductor generated is in none of them."""
    return _ranked(
        {
            one.key: (one.count, one.self_cpu_time_total * 1e3)
            for one in taken.key_averages()
            if one.key.startswith(("aten::", "mkl::", "mkldnn::", "graph_", "cpp_"))
        }
    )


def _ranked(times: dict[str, tuple[int, float]]) -> list[KernelTime]:
    kernels = [
        KernelTime(name, count / STEPS, total / STEPS) for name, (count, total) in times.items()
    ]
    return sorted(kernels, key=lambda one: -one.ns)


def issued_ns(issue: Callable[[], Any], wait: Callable[[], object], steps: int = STEPS) -> float:
    """What the host alone takes for a step: nobody waits for the device in between. Only the best
    of a few rounds, since a full queue makes the host wait too."""
    best = float("inf")
    for _ in range(5):
        wait()
        began = time.perf_counter_ns()
        for _ in range(steps):
            issue()
        best = min(best, (time.perf_counter_ns() - began) / steps)
    wait()
    return best


_OWN_FUNCTION = re.compile(r"^(?P<file>[^(]+\.py)\((?P<line>\d+)\): (?P<name>.*)$")
_LAYER = "nn.Module: "
# Python runs in a thread what was forked in one.
_NOBODYS = ("torch/", "whet/", "threading.py")


def by_layer(repeat: Callable[[int], None], gpu: bool) -> dict[str, Value]:
    """The time of a step by the model's layers and functions: for eager alone, since a compiled
    kernel is of many. On a GPU it is the time of the kernels that they launch."""
    from torch._C._profiler import _ExperimentalConfig

    verbose = _ExperimentalConfig(verbose=True)  # without it events have no stacks
    taken = _taken(repeat, 1, gpu, with_stack=True, experimental_config=verbose)
    layers: dict[str, float] = {}
    for one in taken.events():
        where = _own_function(one.stack or ())
        us = sum(kernel.duration for kernel in one.kernels) if gpu else one.self_cpu_time_total
        if where and us > 0 and one.name.startswith("aten::"):
            layers[where] = layers.get(where, 0.0) + us
    ranked = sorted(layers.items(), key=lambda item: -item[1])[:_KERNELS]
    return {"layers": json.dumps([[where, us * 1e3] for where, us in ranked])}


def _own_function(stack: Iterable[str]) -> str:
    """The innermost function that is not torch's or ours, with the layer that it called; the layer
    alone where all functions are torch's. Torch's stacks have the line where a function begins,
    not the one it is at."""
    layer = ""
    for frame in stack:
        if frame.startswith(_LAYER):
            layer = layer or frame.removeprefix(_LAYER)
        match = _OWN_FUNCTION.match(frame)
        if match and not match["file"].startswith(_NOBODYS):
            called = f"{layer} in " if layer else ""
            return f"{called}{match['name']}, {match['file']}:{match['line']}"
    return layer
