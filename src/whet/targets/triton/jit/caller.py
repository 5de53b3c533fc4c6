"""Who called a kernel, and whether that was a tuner at work."""

from __future__ import annotations

import sys
from typing import Any

_OURS = ("whet", "triton")
_MEASURING = ("whet.measure.", "whet.engine.", "whet.targets.triton.measuring.")
_BENCHMARKS = frozenset({"_bench", "benchmark", "do_bench"})
_MOST_FRAMES = 200


def caller_of(depth: int = 2) -> tuple[str, bool]:
    """`file.py:12 in function` of the first frame that is neither Triton's nor ours, and whether
    the call was made to measure a config."""
    frame: Any = sys._getframe(depth)
    found, measuring = "", False
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        module = str(frame.f_globals.get("__name__", ""))
        code = frame.f_code
        if module.partition(".")[0] not in _OURS:
            found = found or f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        elif module.startswith(_MEASURING):
            measuring = True
        elif module in ("triton.runtime.autotuner", "triton.testing"):
            measuring = measuring or code.co_name in _BENCHMARKS
        frame = frame.f_back
    return found, measuring
