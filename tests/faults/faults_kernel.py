"""A C kernel whose configs are good, or poisoned in a way that one macro chooses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np

import whet
from whet.builds.job import Job
from whet.core.config import Config
from whet.core.status import Status
from whet.engine import Settings
from whet.engine.target import BenchLimits
from whet.measure.bench.protocol import Bench
from whet.measure.bench.remote import RemoteBench
from whet.measure.timers import CpuTimer
from whet.targets.native.loader import NativeLoader
from whet.targets.native.target import NativeTarget

Kind = TypeVar("Kind", bound=NativeTarget)


class Poison(IntEnum):
    NONE = 0
    WRITES_FAR = 1
    READS_FAR = 2
    WRITES_NULL = 3
    JUMPS_NOWHERE = 4
    SPINS = 5
    SLEEPS = 6
    ASKS_FOR_TOO_MUCH = 7
    EATS_ALL = 8
    ABORTS = 9
    ASSERTS = 10
    ONE_ELEMENT_OFF = 11
    DOES_NOTHING = 12
    LEAVES_CHILDREN = 20
    PRINTS_FOR_EVER = 21
    CLOSES_EVERYTHING = 22
    EXITS_WITH_ZERO = 23
    STOPS_ITSELF = 24
    IGNORES_SIGNALS_AND_SPINS = 25
    CATCHES_ITS_FAULTS = 26
    WRITES_TO_EVERY_DESCRIPTOR = 27
    WRITES_TO_ITS_STREAMS = 28
    REMOVES_ITS_FOLDER = 29
    GOES_ELSEWHERE = 30
    SENDS_ITSELF_SIGTERM = 31
    SETS_AN_ALARM = 32
    LEAVES_THREADS_SPINNING = 33
    LEAVES_A_PROCESS_SPINNING = 34


_NAMES = "\n".join(f"#define {poison.name} {poison.value}" for poison in Poison)

SOURCE = (
    "#define _GNU_SOURCE\n"
    + _NAMES
    + r"""
#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void go_on(int number) { (void)number; }

static void *spin(void *ignored) { for (volatile int i = 0;; i++) ; return ignored; }

static void misbehave(const float *x, float *y, int n)
{
    static int before = 0;
    volatile char *far = (volatile char *)x + ((size_t)1 << 46);
    static char block[1 << 20];
    static void *volatile kept; // or the compiler would drop allocations that nobody uses
    if (POISON == WRITES_FAR) *far = 1;
    if (POISON == READS_FAR) y[0] = *far;
    if (POISON == WRITES_NULL) *(volatile int *)8 = 1;
    if (POISON == JUMPS_NOWHERE) ((void (*)(void))far)();
    if (POISON == SPINS) for (volatile int i = 0;; i++) ;
    if (POISON == SLEEPS) for (;;) pause();
    if (POISON == ASKS_FOR_TOO_MUCH) memset(kept = malloc((size_t)1 << 45), 1, 1);
    if (POISON == EATS_ALL) for (;;) memset(kept = malloc(1 << 22), 1, 1 << 22);
    if (POISON == ABORTS) abort();
    if (POISON == ASSERTS) assert(n == 0);
    if (POISON == LEAVES_CHILDREN && !before) {
        if (!fork()) for (;;) pause();
        if (!fork()) { setsid(); if (fork()) _exit(0); for (;;) pause(); }
    }
    if (POISON == PRINTS_FOR_EVER) for (;;) if (write(1 + before++ % 2, block, sizeof block)) {}
    if (POISON == CLOSES_EVERYTHING) for (int fd = 0; fd < 1024; fd++) close(fd);
    if (POISON == EXITS_WITH_ZERO) exit(0);
    if (POISON == STOPS_ITSELF) raise(SIGSTOP);
    if (POISON == IGNORES_SIGNALS_AND_SPINS) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        for (int number = 1; number < 65; number++) signal(number, SIG_IGN);
        for (volatile int i = 0;; i++) ;
    }
    if (POISON == CATCHES_ITS_FAULTS) { signal(SIGSEGV, go_on); *far = 1; }
    if (POISON == WRITES_TO_EVERY_DESCRIPTOR)
        for (int fd = 3; fd < 1024; fd++) if (write(fd, "a line of nonsense\n", 19)) {}
    if (POISON == WRITES_TO_ITS_STREAMS && !before)
        for (int fd = 0; fd < 3; fd++) if (write(fd, "a line of nonsense\n", 19)) {}
    if (POISON == REMOVES_ITS_FOLDER && !before && rmdir(getcwd(block, sizeof block))) {}
    if (POISON == GOES_ELSEWHERE && !before && chdir("/proc")) {}
    if (POISON == SENDS_ITSELF_SIGTERM) kill(getpid(), SIGTERM);
    if (POISON == SETS_AN_ALARM && !before) ualarm(50000, 0);
    if (POISON == LEAVES_THREADS_SPINNING && !before) {
        pthread_t thread;
        for (int k = 0; k < 4; k++) pthread_create(&thread, NULL, spin, NULL);
    }
    if (POISON == LEAVES_A_PROCESS_SPINNING && !before && !fork()) spin(NULL);
    before = 1;
}

void square(const float *x, float *y, int n)
{
    misbehave(x, y, n);
    for (int repeat = 0; repeat < WORK && POISON != DOES_NOTHING; repeat++)
        for (volatile int i = 0; i < n; i++)
            y[i] = x[i] * x[i];
    if (POISON == ONE_ELEMENT_OFF) y[7] += 1;
}
"""
)

TWELVE = {
    Poison.WRITES_FAR: Status.RUN_ERROR,
    Poison.READS_FAR: Status.RUN_ERROR,
    Poison.WRITES_NULL: Status.RUN_ERROR,
    Poison.JUMPS_NOWHERE: Status.RUN_ERROR,
    Poison.SPINS: Status.RUN_TIMEOUT,
    Poison.SLEEPS: Status.RUN_TIMEOUT,
    Poison.ASKS_FOR_TOO_MUCH: Status.RESOURCES,
    Poison.EATS_ALL: Status.RESOURCES,
    Poison.ABORTS: Status.RUN_ERROR,
    Poison.ASSERTS: Status.RUN_ERROR,
    Poison.ONE_ELEMENT_OFF: Status.WRONG_RESULT,
    Poison.DOES_NOTHING: Status.WRONG_RESULT,
}

NASTY = {
    Poison.LEAVES_CHILDREN: Status.OUTRACED,
    Poison.PRINTS_FOR_EVER: Status.RUN_TIMEOUT,
    Poison.CLOSES_EVERYTHING: Status.RUN_ERROR,
    Poison.EXITS_WITH_ZERO: Status.RUN_ERROR,
    Poison.STOPS_ITSELF: Status.RUN_TIMEOUT,
    Poison.IGNORES_SIGNALS_AND_SPINS: Status.RUN_TIMEOUT,
    Poison.CATCHES_ITS_FAULTS: Status.RUN_TIMEOUT,
    Poison.WRITES_TO_EVERY_DESCRIPTOR: Status.RUN_ERROR,
    Poison.WRITES_TO_ITS_STREAMS: Status.OUTRACED,
    Poison.REMOVES_ITS_FOLDER: Status.OUTRACED,
    Poison.GOES_ELSEWHERE: Status.OUTRACED,
    Poison.SENDS_ITSELF_SIGTERM: Status.RUN_ERROR,
}

BEST = Config(POISON=0, WORK=1)

LIMITS = Settings(build_limit_s=300.0, run_limit_s=0.3, jobs=2, memory_bytes=64 << 20)
"""An endless config costs that much; a good one needs some milliseconds."""

PATIENT = replace(LIMITS, run_limit_s=20.0)
"""Where nothing is endless."""


@dataclass(frozen=True)
class SharedBuilds(NativeTarget):
    """Each config is compiled once in the life of the process, however many runs there are.

    With `forked` a measuring process that a config has ended is replaced within milliseconds, and
    not in the half second that a fresh interpreter takes.
    """

    forked: bool = False

    def job(self, config: Config) -> Job | None:
        job = super().job(config)
        assert job is not None
        return Job(job.call, job.args, identity=f"faults {self.compiler_arguments(config)}")

    def bench(self, limits: BenchLimits) -> Bench:
        if not self.forked:
            return super().bench(limits)
        loader = NativeLoader(self.args, self.expected, self.rtol, self.atol)
        return RemoteBench(lambda: loader, CpuTimer, "fork", limits.memory_bytes)


def healthy(count: int) -> list[dict[str, int]]:
    """The first is the best: any other has at least three times its work."""
    return [{"POISON": 0, "WORK": 1 if k == 0 else 2 + k} for k in range(count)]


def poisoned(poisons: Iterable[Poison], work: int = 1) -> list[dict[str, int]]:
    return [{"POISON": int(poison), "WORK": work} for poison in poisons]


def kernel(configs: list[dict[str, int]], forked: bool = False) -> SharedBuilds:
    x = np.arange(1, 2001, dtype=np.float32)
    plain = whet.native(
        SOURCE,
        configs,
        function="square",
        options=("-O1", "-pthread"),
        args={"x": x, "y": np.zeros_like(x), "n": x.size},
        outputs=["y"],
        reference=x * x,
    )
    return turned_into(SharedBuilds, plain, forked=forked)


def turned_into(kind: type[Kind], target: NativeTarget, **more: Any) -> Kind:
    """A target with the same fields, of a class with more of them."""
    given = {field.name: getattr(target, field.name) for field in fields(target)}
    return kind(**given, **more)
