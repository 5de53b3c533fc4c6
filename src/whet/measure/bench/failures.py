"""Says what went wrong with a config, in a line that a person can act on."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from whet.core.errors import ConfigFailure
from whet.core.status import Limit, Status

_OUT_OF_MEMORY = re.compile(
    r"bad_alloc|out of memory|cannot allocate memory|memory exhausted|MemoryError", re.IGNORECASE
)
# What CUDA and HIP say when a context is gone: from then on every call in it fails like this.
# ("device-side assertions" alone is advice that torch adds to whatever CUDA says.)
_SPOILT = re.compile(
    r"illegal memory access|device-side assert triggered|unspecified launch failure"
    r"|illegal instruction|misaligned address|invalid program counter|illegal address"
    r"|invalid address space"
    r"|hardware stack error|launch timed out|memory access fault|uncorrectable",
    re.IGNORECASE,
)
_TAIL_LINES = 5
_OURS = str(Path(__file__).resolve().parents[2]) + os.sep


def from_exception(problem: BaseException) -> ConfigFailure:
    """`ValueError: no such tile (in kernel.py, line 12: check(tile))`"""
    name, text = type(problem).__name__, str(problem)
    said = f"{name}: {text}" if text else name
    where = _own_line(problem)
    message = f"{said} (in {where})" if where else said
    if isinstance(problem, MemoryError) or name == "OutOfMemoryError":
        return ConfigFailure(Status.RESOURCES, f"out of memory: {message}")
    if isinstance(problem, RuntimeError) and _OUT_OF_MEMORY.search(text):
        return ConfigFailure(Status.RESOURCES, message)
    spoils = isinstance(problem, RuntimeError) and _SPOILT.search(text) is not None
    return ConfigFailure(Status.RUN_ERROR, message, spoils=spoils)


def is_out_of_memory(problem: BaseException) -> bool:
    """The host's or a device's; torch's own error has had more than one name."""
    if isinstance(problem, MemoryError) or type(problem).__name__ == "OutOfMemoryError":
        return True
    return isinstance(problem, RuntimeError) and bool(_OUT_OF_MEMORY.search(str(problem)))


def from_death(
    signal_number: int | None, exitcode: int | None, stderr: str, memory_bytes: int | None
) -> ConfigFailure:
    """`killed by SIGSEGV (segmentation fault)`, and the last lines the process wrote."""
    limit = None if memory_bytes is None else Limit("memory_bytes", memory_bytes)
    tail = "\n".join(stderr.strip().splitlines()[-_TAIL_LINES:])
    if _OUT_OF_MEMORY.search(stderr):
        return ConfigFailure(Status.RESOURCES, _with_tail("out of memory", tail), limit)
    if signal_number == signal.SIGKILL:
        text = "killed by SIGKILL, most likely because the machine ran out of memory"
        return ConfigFailure(Status.RESOURCES, _with_tail(text, tail), limit)
    if signal_number is None and exitcode is None:
        text = "its process sent an invalid answer"
    elif signal_number is None:
        text = f"its process ended with exit code {exitcode}"
    else:
        text = f"killed by {_signal_text(signal_number)}"
    return ConfigFailure(Status.RUN_ERROR, _with_tail(text, tail))


def from_timeout(limit_s: float) -> ConfigFailure:
    return ConfigFailure(
        Status.RUN_TIMEOUT,
        f"still running after {limit_s:g} s and was killed",
        Limit("run_s", limit_s),
    )


def from_first_call_timeout(limit_s: float) -> ConfigFailure:
    return ConfigFailure(
        Status.RUN_TIMEOUT,
        f"its first call was still running after {limit_s:g} s and was killed; if the first "
        "call compiles, raise first_call_limit (WHET_FIRST_CALL_LIMIT)",
        Limit("first_call_s", limit_s),
    )


def _signal_text(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    meaning = signal.strsignal(number)
    return f"{name} ({meaning.lower()})" if meaning else name


def _with_tail(text: str, tail: str) -> str:
    return f"{text}\n{tail}" if tail else text


def _own_line(problem: BaseException) -> str:
    """The innermost line of the user's own code, or of a library where none of it is theirs."""
    import sysconfig
    import traceback

    paths = sysconfig.get_paths()
    libraries = tuple(paths[key] + os.sep for key in ("stdlib", "purelib", "platlib"))
    frames = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if not os.path.abspath(frame.filename).startswith(_OURS)
    ]
    own = [frame for frame in frames if not frame.filename.startswith(libraries)]
    for frame in (*reversed(own), *reversed(frames)):
        line = f": {frame.line}" if frame.line else ""
        return f"{os.path.basename(frame.filename)}, line {frame.lineno}{line}"
    return ""
