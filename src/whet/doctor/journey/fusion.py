"""Fusion groups: which operations of the model ended up in which kernel of the generated code."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SOURCE = re.compile(
    r"# (?:Topologically Sorted |Unsorted )?Source [Nn]odes: \[(?P<nodes>[^\]]*)\]"
    r"(?:, Original ATen: \[(?P<ops>[^\]]*)\])?"
)
_CALL = re.compile(r"^\s+(?:(?P<out>\w+) = )?(?P<name>[\w.]+)\((?P<args>.*)")
_LAUNCH = re.compile(r"^\s+(?P<name>\w+)\.run\(")
_NAMED = re.compile(r"fused_(.+?)_\d+$")  # where no comment says what is in it
_NO_KERNELS = ("empty_strided", "assert_", "reinterpret_tensor", "del ", "return", "with", "stream")


@dataclass(frozen=True)
class FusedKernel:
    """`library` is whether it is a call of the vendor's library, not a generated kernel."""

    name: str
    nodes: tuple[str, ...]
    operations: tuple[str, ...]
    library: bool


def fused_kernels(code: str) -> list[FusedKernel]:
    """In the order of their calls. Only calls below a comment that names their nodes: a generated
    kernel's own definition has one as well, and is no call."""
    found: list[FusedKernel] = []
    pending: re.Match[str] | None = None
    inside = False
    for line in code.splitlines():
        inside = inside or line.lstrip().startswith("def call(")
        source = _SOURCE.search(line)
        if source is not None:
            pending = source if inside else None
            continue
        name = _called(line) if inside else ""
        if name and (pending is not None or name.startswith(("triton_", "cpp_fused"))):
            found.append(_kernel(name, pending))
            pending = None
    return found


def _called(line: str) -> str:
    launch = _LAUNCH.match(line)
    if launch is not None:
        return launch["name"]
    call = _CALL.match(line)
    if call is None or call["name"].startswith(_NO_KERNELS):
        return ""
    name = call["name"]
    generated = name.startswith(("cpp_", "triton_"))
    library = name.startswith(("extern_kernels.", "torch.ops.", "aten."))
    return name if generated or library else ""


def _kernel(name: str, source: re.Match[str] | None) -> FusedKernel:
    def words(group: str) -> tuple[str, ...]:
        text = "" if source is None else source[group] or ""
        return tuple(word.strip() for word in text.split(",") if word.strip())

    library = not name.startswith(("cpp_", "triton_"))
    named = _NAMED.search(name)
    operations = words("ops") or tuple(named[1].split("_") if named else ())
    return FusedKernel(name, words("nodes"), operations, library)
