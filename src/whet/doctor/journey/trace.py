"""Reads what torch writes where TORCH_TRACE points: graphs, code and the phases of a compile."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class TracedText:
    """`part` numbers the compiled part of the model, from 0 on; there are several where the graph
    breaks."""

    kind: str
    part: int
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
                texts.append(TracedText(kind, int(data.get("frame_id") or 0), payload[:LONGEST]))
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
