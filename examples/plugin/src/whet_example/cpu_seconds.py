"""`whet.function(fn, space, timer="cpu-seconds")`."""

from __future__ import annotations

import resource
import time

from whet.measure import Reading, Runnable, Timer, Warm

SAMPLE_NS = 1_000_000
PATIENCE_NS = 20 * SAMPLE_NS


class CpuSeconds(Timer):
    """CPU time on all cores, that of child processes included, in place of wall time: for what is
    paid by the CPU second, and for machines that are never quiet."""

    name = "cpu-seconds"

    def warm(self, run: Runnable) -> Warm:
        """Doubles the executions until they use enough to be measured; where they never do, as
        with a kernel that sleeps, until that takes too long."""
        start = time.perf_counter_ns()
        loops = 1
        while True:
            began, used = time.perf_counter_ns(), _burst(run, loops)
            if used >= SAMPLE_NS or time.perf_counter_ns() - began >= PATIENCE_NS:
                break
            loops *= 2
        return Warm(loops, used / loops, (time.perf_counter_ns() - start) / 1e9)

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        taken = tuple(_burst(run, warm.loops) / warm.loops for _ in range(samples))
        return Reading(taken, warm.loops, self.name)


def _burst(run: Runnable, loops: int) -> int:
    """What so many executions use, in nanoseconds; the kernel counts in microseconds."""
    before = _used_ns()
    run.repeat(loops)
    return max(_used_ns() - before, 1000)


def _used_ns() -> int:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(1e9 * sum(one.ru_utime + one.ru_stime for one in usages))
