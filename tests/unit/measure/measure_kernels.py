"""Kernels that behave as their config says. A module of its own, so that workers can import it."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from whet.core.config import Config
from whet.core.errors import ConfigFailure, UsageError
from whet.core.status import Status
from whet.measure.bench.protocol import Verdict
from whet.measure.timers import CpuTimer


class Kernel:
    """`does` says what; `when` says in which phase: load, check or run."""

    def __init__(self, config: Config, log: list[str]) -> None:
        self.facts = {"name": str(config.get("name", "")), "pid": os.getpid()}
        self._does = str(config.get("does", "work"))
        self._when = str(config.get("when", "run"))
        self._name = str(config.get("name", ""))
        self._log = log
        self._mark = Path(str(config.get("mark", "")))
        self._act("load")

    def repeat(self, n: int) -> None:
        self._act("run")
        for _ in range(n):
            sum(range(50))

    def check(self) -> Verdict:
        self._act("check")
        if self._does == "lie":
            return Verdict(False, "output 'c': 1 of 4 elements differ")
        return Verdict(True)

    def close(self) -> None:
        self._log.append(f"close {self._name}")
        if self._does == "close badly":
            raise OSError("cannot close")

    def _act(self, when: str) -> None:
        if self._does == "crash once" and not self._mark.exists():
            self._mark.touch()
            _segfault()
        if when == self._when:
            ACTS.get(self._does, lambda: None)()


spoilt = False


class SpoilableKernel(Kernel):
    """In a process that has been spoilt, nothing runs any more."""

    def _act(self, when: str) -> None:
        global spoilt
        if when == self._when and self._does in ("spoil", "spoil unheard"):
            spoilt = True
        if spoilt and when != "load":
            unheard = self._does == "spoil unheard"
            raise RuntimeError("strange" if unheard else "an illegal memory access was encountered")


class SpoilableLoader:
    """Can tell whether its process has been spoilt, whatever a problem says."""

    def load(self, config: Config, artifact: Any) -> Kernel:
        return SpoilableKernel(config, [])

    def recover(self, problem: BaseException) -> bool:
        return not spoilt


class GroupTimer(CpuTimer):
    grouped = True


def group_timer() -> GroupTimer:
    return GroupTimer(min_sample_ns=20_000, warmup_ns=200_000)


class KernelLoader:
    def __init__(self) -> None:
        self.log: list[str] = []

    def load(self, config: Config, artifact: Any) -> Kernel:
        self.log.append(f"load {config.get('name', '')} {artifact}")
        return Kernel(config, self.log)


def quick_timer() -> CpuTimer:
    return CpuTimer(min_sample_ns=20_000, warmup_ns=200_000)


def broken_loader() -> KernelLoader:
    raise ValueError("no such device")


def misused_loader() -> KernelLoader:
    raise UsageError("file 'kernel.c' is missing")


def _raise() -> None:
    raise ValueError("no such tile")


def _refuse() -> None:
    raise ConfigFailure(Status.RESOURCES, "needs 96 KB of shared memory, there are 48 KB")


def _out_of_memory() -> None:
    raise MemoryError("cannot have 8 TB")


def _exit() -> None:
    sys.exit(3)


def _segfault() -> None:
    ctypes.string_at(0)


def _abort() -> None:
    print("terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr)
    sys.stderr.flush()
    os.abort()


def _share_memory() -> None:
    shared = mmap.mmap(-1, 300 << 20)
    for _ in range(300):
        shared.write(b"x" * (1 << 20))
    time.sleep(3600)


ACTS = {
    "raise": _raise,
    "refuse": _refuse,
    "run out of memory": _out_of_memory,
    "exit": _exit,
    "leave": lambda: os._exit(7),
    "segfault": _segfault,
    "divide": lambda: os.kill(os.getpid(), signal.SIGFPE),
    "be killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "bad_alloc": _abort,
    "hang": lambda: time.sleep(3600),
    "share memory": _share_memory,
    "allocate": lambda: bytearray(1 << 30),
}
