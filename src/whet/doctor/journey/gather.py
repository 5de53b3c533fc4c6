"""Compiles the model once more, in a process of its own, with everything written down.

Nothing is timed there but the phases of the compilation: writing all this takes time itself.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.doctor.journey.trace import LONGEST, CompileTrace, read_trace
from whet.doctor.modes.second import LIMIT_S, child_environment, end_with
from whet.doctor.modes.sources import SubjectSource

# Stages of Triton's way from its IR to machine code, in their order.
STAGES = ("ttir", "ttgir", "llir", "ptx")
_KERNELS_SHOWN = 6
_GENERATED = "inductor/cpp_prefix"  # what probes of the processor do not include
_TRACK_EVENTS = 400


@dataclass(frozen=True)
class StagedKernel:
    """`stages` by name: Triton's IRs and PTX, or C++ and its assembly."""

    name: str
    stages: dict[str, str]


@dataclass(frozen=True)
class RanEvent:
    """One kernel or operation of one step; `track` is `device` or `host`."""

    name: str
    track: str
    start_us: float
    took_us: float


@dataclass(frozen=True)
class ModeJourney:
    mode: str
    trace: CompileTrace = field(default_factory=CompileTrace)
    kernels: tuple[StagedKernel, ...] = ()
    events: tuple[RanEvent, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class _Followed:
    source: SubjectSource
    mode: str
    folder: str


def journey(source: SubjectSource, mode: str) -> ModeJourney:
    with tempfile.TemporaryDirectory(prefix="whet-doctor-") as folder:
        asked = Path(folder, "asked")
        asked.write_bytes(pickle.dumps((os.getpid(), _Followed(source, mode, folder))))
        environment = {
            **child_environment(),
            "TORCH_TRACE": str(Path(folder, "trace")),
            "TORCHINDUCTOR_CACHE_DIR": str(Path(folder, "inductor")),
            "TRITON_CACHE_DIR": str(Path(folder, "triton")),
        }
        command = [sys.executable, "-m", "whet.doctor.journey.gather", str(asked)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT_S, env=environment
            )
        except subprocess.TimeoutExpired:
            return ModeJourney(mode, problem=f"did not end within {LIMIT_S:.0f} s")
        if done.returncode:
            last = done.stderr.strip().splitlines()
            return ModeJourney(mode, problem=last[-1] if last else f"exit code {done.returncode}")
        return _read(mode, Path(folder))


def _read(mode: str, folder: Path) -> ModeJourney:
    told: dict[str, Any] = json.loads((folder / "told").read_text())
    return ModeJourney(
        mode,
        read_trace(folder / "trace"),
        (*_triton_kernels(folder), *_cpp_kernels(folder / "inductor")),
        tuple(RanEvent(*one) for one in told["events"]),
        told["metrics"],
    )


def _triton_kernels(folder: Path) -> list[StagedKernel]:
    """Triton keeps the stages of a kernel side by side, under its name; Inductor may move them into
    its own cache."""
    found = []
    for first in sorted(folder.rglob("*.ttir"))[:_KERNELS_SHOWN]:
        stages = {}
        for stage in STAGES:
            with suppress(OSError):
                stages[stage] = first.with_suffix(f".{stage}").read_text()[:LONGEST]
        found.append(StagedKernel(first.stem, stages))
    return found


def _cpp_kernels(folder: Path) -> list[StagedKernel]:
    found: list[StagedKernel] = []
    for path in sorted(folder.rglob("*.cpp")):
        text = path.read_text(errors="replace")
        if _GENERATED not in text:
            continue
        stages = {"C++": text[:LONGEST]}
        assembly = _assembly(folder, path.stem)
        if assembly:
            stages["assembly"] = assembly
        found.append(StagedKernel(f"C++ kernel {len(found)}", stages))
    return found[:_KERNELS_SHOWN]


_KERNEL_SYMBOL = re.compile(r"^[0-9a-f]+ <(kernel|_Z6kernel\w*)(\.\w+)*>:")


def _assembly(folder: Path, stem: str) -> str:
    """The kernel's own function, with the part that OpenMP runs; needs binutils."""
    library = next(iter(folder.rglob(f"{stem}*.so")), None)
    if library is None:
        return ""
    try:
        done = subprocess.run(
            ["objdump", "-d", "--no-show-raw-insn", str(library)],
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    blocks = done.stdout.split("\n\n")
    return "\n\n".join(one for one in blocks if _KERNEL_SYMBOL.match(one.lstrip()))[:LONGEST]


def _tell(asked: _Followed) -> None:
    import torch

    from whet.doctor.modes.loaded import LoadedMode

    torch.manual_seed(0)
    mode = LoadedMode(asked.source.load(), asked.mode)
    mode.compile()
    mode.repeat(4)
    told = {"metrics": _metrics(), "events": _events(mode.repeat, mode.device is not None)}
    Path(asked.folder, "told").write_text(json.dumps(told))


def _metrics() -> dict[str, float]:
    """Seconds by phase, over all compiled parts."""
    seconds: dict[str, float] = {}
    with suppress(Exception):
        from torch._dynamo.utils import get_compilation_metrics

        for one in get_compilation_metrics():
            for name, value in vars(one).items():
                if name.endswith("_time_us") and isinstance(value, int) and value > 0:
                    short = name.removesuffix("_time_us")
                    seconds[short] = seconds.get(short, 0.0) + value / 1e6
    return seconds


def _events(repeat: Callable[[int], None], gpu: bool) -> list[list[Any]]:
    """Of one settled step, in microseconds from its start."""
    with suppress(Exception):
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
        with profile(activities=kinds):
            repeat(1)
        with profile(activities=kinds) as taken:
            repeat(1)
        events = [one for one in taken.events() if one.time_range.elapsed_us() > 0]
        origin = min((one.time_range.start for one in events), default=0.0)
        return [
            [
                one.name,
                "device" if one.device_type == DeviceType.CUDA else "host",
                one.time_range.start - origin,
                one.time_range.elapsed_us(),
            ]
            for one in sorted(events, key=lambda event: event.time_range.start)[:_TRACK_EVENTS]
        ]
    return []


if __name__ == "__main__":
    _parent, _asked = pickle.loads(Path(sys.argv[1]).read_bytes())
    end_with(_parent)
    _tell(_asked)
