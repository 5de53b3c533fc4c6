"""Modes that come to the same program: on a CPU most of their options change nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from whet.core.config import Value

# Modes that ask for CUDA graphs leave these lines out of the same program, wherever they run.
_CHECKS = ("assert_size_stride(", "assert_alignment(", "#")

# What a second process finds out about a program, whichever mode it was compiled in.
_OF_THE_PROGRAM = (
    "kernels",
    "error",
    "eager_error",
    "close_to_eager",
    "outputs",
    "digest",
    "far_from",
    "far_part",
    "not_profiled",
)

_KNOWN = "program.json"


def program_in(caches: str) -> str:
    """A digest of all code that Inductor has generated there, checks of inputs and comments aside;
    empty where there is none."""
    texts = [
        "\n".join(line for line in text.splitlines() if not line.strip().startswith(_CHECKS))
        for path in Path(caches, "inductor").rglob("*.py")
        if "def call(" in (text := path.read_text(errors="replace"))
    ]
    if not texts:
        return ""
    return hashlib.sha256("\0".join(sorted(texts)).encode()).hexdigest()


def keep_program(caches: str, program: str, facts: Mapping[str, Value]) -> None:
    """For the modes after this one, whose caches lie beside its own."""
    known = {name: facts[name] for name in _OF_THE_PROGRAM if name in facts}
    with suppress(OSError):
        Path(caches, _KNOWN).write_text(json.dumps({"program": program, "facts": known}))


def same_program(caches: str, program: str) -> dict[str, Value]:
    """What is known of the program from the first mode that came to it, which is `same_as`; empty
    where none did."""
    for path in Path(caches).parent.glob(f"*/{_KNOWN}"):
        with suppress(OSError, ValueError):
            kept = json.loads(path.read_text())
            if program and kept["program"] == program:
                return {**kept["facts"], "same_as": path.parent.name}
    return {}
