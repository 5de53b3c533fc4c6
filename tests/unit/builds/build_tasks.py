"""Builds that a worker can import."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

from whet.builds.job import Built
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.core.status import Limit, Status
from whet.workers.stages import stage

_ALLOWED = Limit("memory_bytes", 65536)


def compile_c(source: str) -> Built:
    """A real build, with the compiler's complaints on the worker's stderr."""
    Path("kernel.c").write_text(source)
    with stage("compile"):
        subprocess.run(["cc", "-c", "kernel.c", "-o", "kernel.o"], check=True)
    with stage("link"):
        subprocess.run(["cc", "-shared", "kernel.o", "-o", "kernel.so"], check=True)
    library = Path("kernel.so").read_bytes()
    return Built(library, FrozenMap({"bytes": len(library)}))


def touch_and_wait(path: Path, gate: Path) -> Built:
    path.touch()
    while not gate.exists():
        time.sleep(0.005)
    return Built(path.name)


def at_once(name: str) -> Built:
    return Built(name)


def hang(words: str) -> Built:
    os.write(2, words.encode())
    time.sleep(600)
    raise AssertionError


def crash() -> Built:
    os.write(2, b"internal compiler error\n")
    ctypes.string_at(0)
    raise AssertionError


def kill_itself() -> Built:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def kill_itself_once(mark: Path) -> Built:
    if mark.exists():
        return Built("at the second try")
    mark.touch()
    return kill_itself()


def exhaust_memory() -> Built:
    return Built(len(bytearray(1 << 30)))


def refuse() -> Built:
    raise ConfigFailure(Status.RESOURCES, "98304 bytes of shared memory, 65536 allowed", _ALLOWED)


def not_a_build() -> Built:
    return b"ELF"  # type: ignore[return-value]
