"""What torch's compiler tells while it works: autotune tables, hints, caches, CUDA graphs."""

from __future__ import annotations

import inspect
import json
import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

from whet.core.config import Value

# A second look at autotune tables: how many of the best choices, how often, how long in all.
_LOOKED_AT = 3
_LOOKS = 5
_LOOK_S = 12.0

_HINTS = re.compile(r"torch\._inductor.*__perf_hints$")
_GRAPHS = re.compile(r"torch\._inductor.*__cudagraphs$")
_SKIPPED = "skipping cudagraph"
_BYPASS = re.compile(r"Bypassing (FX Graph|autograd) [Cc]ache (?:because|due to:?) (?P<why>.*)")
_COUNTED = (
    ("inductor", "fxgraph_cache_hit"),
    ("inductor", "fxgraph_cache_miss"),
    ("inductor", "fxgraph_cache_bypass"),
    ("inductor", "select_algorithm_autotune"),
)

STEPS = 10
_KERNELS = 12
_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "hipLaunchKernel")


@dataclass(frozen=True)
class TunedOp:
    """One autotune table: the time of each choice in milliseconds, the pick first. `careful_ms` are
    the best choices again, timed several times after the compilation had ended."""

    name: str
    shapes: str
    choices: tuple[tuple[str, float], ...]
    careful_ms: Mapping[str, float]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TunedOp:
        choices = tuple((str(name), float(ms)) for name, ms in data["choices"])
        return cls(data["name"], data["shapes"], choices, dict(data["careful_ms"]))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "shapes": self.shapes,
            "choices": [list(one) for one in self.choices],
            "careful_ms": dict(self.careful_ms),
        }


class CompilerWatch:
    """Listens from its creation on. What this torch lacks is not heard."""

    def __init__(self) -> None:
        self._tables: dict[str, _Heard] = {}
        self._times_heard = 0
        self._log = _Log()
        self.missing: list[str] = []
        self._listen("autotune tables", self._hear_tuning)
        self._listen("hints of the compiler", self._log.attach)

    def _listen(self, what: str, attach: Callable[[], None]) -> None:
        try:
            attach()
        except Exception as error:
            self.missing.append(f"{what} ({type(error).__name__}: {error})")

    def _hear_tuning(self) -> None:
        from torch._inductor.select_algorithm import add_feedback_saver

        add_feedback_saver(self._tuned)

    def _tuned(self, timings: Mapping[Any, float], name: str, *rest: Any) -> None:
        from torch._inductor.virtualized import V

        self._times_heard += 1
        with suppress(Exception):
            inputs = rest[0] if rest else ()
            again = next((one for one in rest if callable(one)), None)
            frozen = _constants(V.graph, inputs)
            heard = _Heard(name, _shapes(inputs), dict(timings), again, V.graph, frozen)
            self._tables.setdefault(f"{name} {heard.shapes}", heard)

    def facts(self) -> dict[str, Value]:
        """After the first calls: nothing here is part of their time."""
        said: dict[str, Value] = {}
        until = time.monotonic() + _LOOK_S
        tables = [table for one in self._tables.values() if (table := _table(one, until))]
        if tables:
            said["autotune"] = json.dumps([one.to_json() for one in tables])
        said.update(_skipped_graphs(self._log.skips))
        if self._log.hints:
            said["perf_hints"] = json.dumps(list(dict.fromkeys(self._log.hints))[:20])
        if self.missing:
            said["not_heard"] = "; ".join(self.missing)
        return said

    def cache_facts(self) -> dict[str, Value]:
        """Of a process that found the caches filled."""
        from torch._dynamo.utils import counters

        said: dict[str, Value] = {
            f"warm_{name.removeprefix('fxgraph_cache_').removeprefix('select_algorithm_')}": int(
                counters[group][name]
            )
            for group, name in _COUNTED
        }
        # A graph from the cache adds what was counted when it was compiled, tunings too; those that
        # are heard may have been looked up in a cache of their own.
        said["warm_autotune"] = min(int(str(said["warm_autotune"])), self._times_heard)
        if self._log.bypasses:
            said["warm_why"] = self._log.bypasses[0]
        return said


@dataclass(frozen=True)
class _Heard:
    name: str
    shapes: str
    timings: Mapping[Any, float]
    again: Callable[..., Mapping[Any, float]] | None
    graph: Any
    constants: Mapping[str, Any]


def _constants(graph: Any, inputs: Sequence[Any]) -> dict[str, Any]:
    """Frozen weights among the inputs."""
    names = {str(one.get_name()) for one in inputs}
    return {name: value for name, value in graph.constants.items() if name in names}


def _shapes(inputs: Sequence[Any]) -> str:
    return " × ".join("x".join(str(size) for size in one.get_size()) for one in inputs)


def _table(heard: _Heard, until: float) -> TunedOp | None:
    timed = sorted(
        ((choice, ms) for choice, ms in heard.timings.items() if math.isfinite(ms)),
        key=lambda one: one[1],
    )
    if not timed:
        return None
    careful = _careful(heard, [choice for choice, _ in timed[:_LOOKED_AT]], until)
    choices = tuple((_name(choice), float(ms)) for choice, ms in timed)
    return TunedOp(heard.name, heard.shapes, choices, careful)


def _name(choice: Any) -> str:
    """With what tells one Triton configuration from another."""
    described = str(getattr(choice, "description", "") or "")
    return f"{choice.name} {described}".strip()


def _careful(heard: _Heard, choices: Sequence[Any], until: float) -> dict[str, float]:
    """The medians of several rounds over the best choices, in turns."""
    if heard.again is None or len(choices) < 2:
        return {}
    import torch
    from torch._inductor.virtualized import V

    taken: dict[str, list[float]] = {_name(choice): [] for choice in choices}
    with suppress(Exception), _as_heard(heard), V.set_graph_handler(heard.graph), torch.no_grad():
        for _ in range(_LOOKS):
            if time.monotonic() > until:
                break
            for choice, ms in _timed_again(heard.again, list(choices)).items():
                taken[_name(choice)] += [float(ms)] if math.isfinite(ms) else []
    rounds = min(map(len, taken.values()))
    return {name: median(times) for name, times in taken.items()} if rounds >= 3 else {}


@contextmanager
def _as_heard(heard: _Heard) -> Iterator[None]:
    """Torch 2.11 takes frozen weights that nothing uses any more out of the graph, and they are
    what the choices are timed on."""
    kept = heard.graph.constants
    lost = {name: value for name, value in heard.constants.items() if name not in kept}
    kept.update(lost)
    try:
        yield
    finally:
        for name in lost:
            kept.pop(name, None)


def _timed_again(again: Callable[..., Any], choices: list[Any]) -> Mapping[Any, float]:
    """Torch's own second look uses CUDA's profiler whatever the device is. On a CPU, what it was to
    call is called without."""
    import torch

    if torch.cuda.is_available():
        return dict(again(choices))
    held = inspect.getclosurevars(again).nonlocals
    rest = [held[name] for name in ("input_nodes", "layout", "input_gen_fns")]
    return dict(held["self"].benchmark(choices, *rest))


class _Log(logging.Handler):
    """What the compiler logs for those who ask: hints, and why a cache was passed by."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.hints: list[str] = []
        self.bypasses: list[str] = []
        self.skips: list[str] = []

    def attach(self) -> None:
        import torch._inductor.codecache
        import torch._inductor.compile_fx
        import torch._inductor.cudagraph_trees  # noqa: F401  (these make the loggers)

        known = logging.root.manager.loggerDict
        names = [name for name in known if _HINTS.match(name) or _GRAPHS.match(name)]
        names += ["torch._inductor.codecache", "torch._functorch._aot_autograd.autograd_cache"]
        for name in names:
            logger = logging.getLogger(name)
            logger.setLevel(logging.INFO)
            logger.addHandler(self)
            logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if _HINTS.match(record.name):
            self.hints.append(" ".join(text.split()))
        elif _GRAPHS.match(record.name):
            self.skips += [text.strip().splitlines()[0]] if _SKIPPED in text else []
        elif bypass := _BYPASS.match(text):
            self.bypasses.append(bypass["why"].strip("'\" "))


def recordings(device: int | None) -> int | None:
    """How many CUDA graphs torch has recorded in this process; None where that is not known."""
    if device is None:
        return None
    with suppress(Exception):
        from torch._inductor.cudagraph_trees import get_manager

        manager = get_manager(device, create_if_none_exists=False)
        counted = re.search(r"\d+", repr(manager.graph_counter)) if manager is not None else None
        return int(counted[0]) if counted else None
    return None


def _skipped_graphs(logged: Sequence[str]) -> dict[str, Value]:
    """Why CUDA graphs were not used where the mode asks for them; empty where they were. A reason
    that shows only when the graph first runs is logged, and in no metrics."""
    with suppress(Exception):
        from torch._dynamo import utils

        reasons = [one.cudagraph_skip_reason for one in utils.get_compilation_metrics()]
        told = [str(reason).strip().splitlines()[0] for reason in reasons if reason]
        if told or logged:
            return {"cudagraph_skip": [*told, *logged][0]}
        if utils.counters["inductor"]["cudagraph_skips"]:
            return {"cudagraph_skip": "torch does not say why"}
    return {}


@dataclass(frozen=True)
class KernelTime:
    """Of one step."""

    name: str
    calls: float
    ns: float


def profiled(repeat: Callable[[int], None], gpu: bool) -> dict[str, Value]:
    """`repeat` runs the steps and waits for the device. The profiler slows the host down, so that
    only counts and the device's times are taken from it."""
    taken = profile_of(repeat, STEPS, gpu)
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


def profile_of(repeat: Callable[[int], None], steps: int, gpu: bool, **more: Any) -> Any:
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
    taken = profile_of(repeat, 1, gpu, with_stack=True, experimental_config=verbose)
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
