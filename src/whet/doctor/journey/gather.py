"""The report on a model's way to machine code: what torch makes of it, and the page put in place.

The model is compiled once more, in a process of its own, with everything written down:

    python -m whet.doctor.journey.gather FILE

Nothing is timed there but the phases of the compilation: writing all this takes time itself.
"""

from __future__ import annotations

import inspect
import json
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.core.errors import UsageError
from whet.core.files import write_whole
from whet.doctor.modes.compiler import profile_of
from whet.doctor.modes.second import TOO_LONG, end_with, run_module
from whet.doctor.modes.variants import EAGER
from whet.doctor.subject import ExaminedModel, SubjectSource, device_of
from whet.store import StoreReader
from whet.store.scanning import journey_file

if TYPE_CHECKING:
    from whet.doctor.finding import Diagnosis

# On a GPU the second shows what CUDA graphs change.
_ON_GPU = ("max-autotune", "max-autotune-no-cudagraphs")
_ON_CPU = ("default",)

# Stages of Triton's way from its IR to machine code, in their order.
STAGES = ("ttir", "ttgir", "llir", "ptx")
_KERNELS_SHOWN = 6
_GENERATED = "inductor/cpp_prefix"  # what probes of the processor do not include
_TRACK_EVENTS = 400

_LINE = re.compile(r"^[VDIWE]\d{4} [\d:.]+ \d+ [^\]]*\] (?P<data>\{.*)$")

# Of a large model the code has tens of thousands of lines; a page is for reading.
LONGEST = 60_000

GRAPHS = (
    "dynamo_output_graph",
    "aot_joint_graph",
    "aot_forward_graph",
    "aot_backward_graph",
    "aot_inference_graph",
)
PASSES = ("pre_grad", "joint", "post_grad")
CODE = "inductor_output_code"
_LAST = "inductor_post_grad_graph"  # a kind of its own in some versions, an artifact in others


def write_report(
    done: Diagnosis,
    subject: ExaminedModel,
    source: SubjectSource,
    path: Path,
    progress: Callable[[str], None],
) -> str:
    """What it has written."""
    from whet.doctor.journey.page import page

    journeys = []
    for mode in followed(done, gpu=device_of(subject) is not None):
        progress(f"following {mode}: a new process writes everything down")
        journeys.append(journey(source, mode))
    text = page(done, journeys, _source(subject))
    try:
        write_whole(path, text.encode(errors="replace"))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    return text


def keep_report(
    text: str, store: StoreReader, workload_id: str, progress: Callable[[str], None]
) -> None:
    """Beside the store, where an explorer finds it."""
    path = None if store.read_only else journey_file(store, workload_id)
    if path is None:
        return
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, text.encode(errors="replace"))
    except OSError as error:
        progress(f"not kept for the explorer: {error}")


def followed(done: Diagnosis, gpu: bool) -> tuple[str, ...]:
    """The recommended mode first, where it compiles at all."""
    verdict = None if done.trial is None else done.trial.verdict
    chosen = () if verdict is None or verdict.mode == EAGER else (verdict.mode,)
    return tuple(dict.fromkeys((*chosen, *(_ON_GPU if gpu else _ON_CPU))))[: 2 if gpu else 1]


def _source(subject: ExaminedModel) -> str:
    kind = type(subject.model) if hasattr(subject.model, "parameters") else subject.model
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return repr(subject.model)


@dataclass(frozen=True)
class TracedText:
    """`id` is torch's compile id: `1/0` is the second part of the model, of which there are several
    where the graph breaks, compiled for the first time; `1/1` is that part compiled again."""

    kind: str
    id: str
    text: str


@dataclass(frozen=True)
class Phase:
    """A phase of the compilation, with how deep it lies inside others."""

    name: str
    start_us: float
    took_us: float
    depth: int


@dataclass(frozen=True)
class CompileTrace:
    texts: tuple[TracedText, ...] = ()
    phases: tuple[Phase, ...] = ()

    def of(self, kind: str) -> list[TracedText]:
        return [one for one in self.texts if one.kind == kind]


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
        environment = {
            "TORCH_TRACE": str(Path(folder, "trace")),
            "TORCHINDUCTOR_CACHE_DIR": str(Path(folder, "inductor")),
            "TRITON_CACHE_DIR": str(Path(folder, "triton")),
        }
        asked = _Followed(source, mode, folder)
        try:
            code, said = run_module("whet.doctor.journey.gather", asked, folder, **environment)
        except subprocess.TimeoutExpired:
            return ModeJourney(mode, problem=TOO_LONG)
        if code:
            return ModeJourney(mode, problem=said or f"exit code {code}")
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
    told = {"metrics": _metrics(), "events": _step_events(mode.repeat, mode.device is not None)}
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


def _step_events(repeat: Callable[[int], None], gpu: bool) -> list[list[Any]]:
    """Of one settled step, in microseconds from its start."""
    with suppress(Exception):
        from torch.autograd import DeviceType

        taken = profile_of(repeat, 1, gpu)
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


def read_trace(folder: Path) -> CompileTrace:
    """Empty where torch wrote nothing."""
    texts: list[TracedText] = []
    events: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.log")):
        for data, payload in _entries(path.read_text(errors="replace").splitlines()):
            kind = _kind(data)
            if kind == "chromium_event":
                events += _events(payload)
            elif kind:
                texts.append(TracedText(kind, _compile_id(data), payload[:LONGEST]))
    return CompileTrace(tuple(texts), tuple(_phases(events)))


def _entries(lines: Sequence[str]) -> Iterator[tuple[dict[str, Any], str]]:
    """Each entry is a line of JSON; its text follows in lines that begin with a tab."""
    at = 0
    while at < len(lines):
        match = _LINE.match(lines[at])
        at += 1
        start = at
        while at < len(lines) and lines[at].startswith("\t"):
            at += 1
        if match is None:
            continue
        try:
            data = json.loads(match["data"])
        except ValueError:
            continue
        yield data, "\n".join(line[1:] for line in lines[start:at])


def _kind(data: dict[str, Any]) -> str:
    for name in (*GRAPHS, CODE, "chromium_event"):
        if name in data:
            return name
    named = (data.get("artifact") or data.get("graph_dump") or {}).get("name", "")
    if _LAST in data or named == _LAST:
        return "after_post_grad_graph"
    wanted = {f"{side}_{name}_graph" for name in PASSES for side in ("before", "after")}
    return str(named) if named in wanted else ""


def _compile_id(data: dict[str, Any]) -> str:
    frame, again, attempt = (
        int(data.get(name) or 0) for name in ("frame_id", "frame_compile_id", "attempt")
    )
    return f"{frame}/{again}_{attempt}" if attempt else f"{frame}/{again}"


def _events(payload: str) -> list[dict[str, Any]]:
    try:
        event = json.loads(payload)
    except ValueError:
        return []
    return [event] if isinstance(event, dict) else [one for one in event if isinstance(one, dict)]


def _phases(events: Sequence[dict[str, Any]]) -> Iterator[Phase]:
    """Begin and end are events of their own; those of one process nest."""
    timed = [one for one in events if one.get("ph") in ("B", "E") and "ts" in one]
    if not timed:
        return
    origin = min(float(one["ts"]) for one in timed)
    open_phases: list[tuple[str, float]] = []
    for one in sorted(timed, key=lambda event: float(event["ts"])):
        at = float(one["ts"]) - origin
        if one["ph"] == "B":
            open_phases.append((str(one["name"]), at))
            continue
        while open_phases:
            name, began = open_phases.pop()
            if name == one["name"]:
                yield Phase(name, began, at - began, len(open_phases))
                break


if __name__ == "__main__":
    _parent, _asked = pickle.loads(Path(sys.argv[1]).read_bytes())
    end_with(_parent)
    _tell(_asked)
