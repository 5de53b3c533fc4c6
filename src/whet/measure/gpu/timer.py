"""The timer of kernels that run on a GPU.

A launch costs the host more than many a kernel lasts, so events around kernels that are launched
one by one time the host. Here the device sleeps while everything that is to be timed is queued,
and an event after the sleep tells whether the device woke too early.

What it finds out about the device before it times anything:

- The clock, from how long a kernel sleeps that counts cycles: until it is steady nothing is timed,
  and a fall later on is throttling.
- What two events cost. Around one kernel they read more than it takes. An empty kernel's reading
  is too much to take off, since an empty kernel takes a microsecond itself. But two events around
  nothing read only their own cost; and with two different kernels between them they read one cost
  and both kernels, so that `E(a) + E(b) - E(a then b)` is the cost as well, less the gap
  between a and b. Neither can be too large: the larger one is taken off. All that only as long as
  the kernels' code is at hand: when it has to be fetched, that of b is fetched while a runs, and
  half a microsecond too much would come off. So nothing is cleared in between.

Why it is so: docs/decisions/measuring.md.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from whet.core.timing import L2, Method, Quality, median
from whet.measure.bench.protocol import DeviceRoom, is_out_of_memory
from whet.measure.gpu.devices import CudaApi, CudaEvent, TorchCuda
from whet.measure.gpu.nvml import Health
from whet.measure.timer import (
    Hooked,
    Reading,
    Runnable,
    Timer,
    Warm,
)

MAX_RETRIES = 3

# A kernel slower than this is launched once in warm-up, whatever the host did meanwhile.
SLOW_NS = 20e6

# How much is queued at once. The launch queue holds about a thousand operations, but with more
# than some twenty behind it a pair of events reads half a microsecond too much (seen on an H200
# with flushes between samples: of ten in a queue the first six do, the last four do not). Beyond
# the other two a batch that has to be thrown away would be too much of a loss.
QUEUED_OPERATIONS = 20
BATCH_NS = 20e6
BATCH_SLEEP_NS = 10e6

# What one execution queues at most: a hook a few fills or copies, a flush two kernels.
_HOOK_OPERATIONS = 4
_FLUSH_OPERATIONS = 2
_LAUNCH_OPERATIONS = 1
_EVENT_OPERATIONS = 2

SLEEP_FLOOR_NS = 30e3
SLEEP_MARGIN = 1.25
MAX_SLEEP_NS = 100e6
UNKNOWN_HOST_NS = 100e3

# The host's part of a very first launch may be loading, which will not come again: it is not
# believed beyond so many times what other launches took.
MOST_OF_A_FIRST_LAUNCH = 4


@dataclass(frozen=True)
class CudaWarm(Warm):
    """`host_ns` is what queueing one execution costs the host. `queues` is False where the queue
    ran dry however long the device slept, as it does when a hook waits for the device.
    """

    host_ns: float = UNKNOWN_HOST_NS
    queues: bool = True


class CudaTimer(Timer):
    """Time on the device between two events around each launch, read off a queue that was full.

    `repeat(1)` launches the kernel on the current stream and does not wait for it. The runnable
    may have `before()` and `after()`, which run around every single execution and are not timed.
    A batch whose queue may have run dry is thrown away and taken again with a sleep twice as
    long, up to three times; after that launches are timed one by one and the reading is marked
    `host_bound`.

    With a cold L2, what it holds is replaced before each launch by reading as many bytes as it
    has, or `l2_bytes`; 0 is the same as warm, and fewer than it has are in the timer's name, since
    they leave some of it warm. On NVIDIA's devices every launch is fresh: its grid begins in
    another place than the last, and with a cold L2 its code is cold as well. `overhead_ns` is what
    a pair of events reads beyond the kernel; None finds it out. With `graph` the launch is replayed
    from a CUDA graph.
    """

    # The samples of a turn follow each other so closely that none needs a run to get used to.
    primed_below_ns = 0.0
    grouped = True

    def __init__(
        self,
        api: CudaApi | None = None,
        *,
        device: int | None = None,
        l2: L2 = "cold",
        l2_bytes: int | None = None,
        overhead_ns: float | None = None,
        graph: bool = False,
    ) -> None:
        self.overhead_ns = overhead_ns or 0.0
        self._calibrated = overhead_ns is not None
        self._api = TorchCuda(device) if api is None else api
        asked = self._api.l2_bytes if l2_bytes is None else l2_bytes
        self._flush_bytes = 0 if l2 == "warm" else asked
        self.l2 = "cold" if self._flush_bytes else "warm"
        self._graphs: weakref.WeakKeyDictionary[Any, Callable[[int], object]] | None
        self._graphs = weakref.WeakKeyDictionary() if graph else None
        self._prepared = self._flush_bytes == 0
        self._gate = self._api.event()
        self._spare = (self._api.event(), self._api.event())
        self._pairs: list[tuple[CudaEvent, CudaEvent]] = []
        self._host_ns = UNKNOWN_HOST_NS
        self._conditions = Conditions(self._api)

    @property
    def name(self) -> str:
        return Method.on_gpu(
            self._flush_bytes,
            self._api.l2_bytes,
            fresh=self._api.fresh,
            graph=self._graphs is not None,
        ).timer

    def prepare(self, room: DeviceRoom) -> None:
        """Takes the memory that a cold L2 needs. Where there is none, the L2 is warm from now on,
        and every reading says so."""
        size = self._flush_bytes
        while size and not self._prepared:
            try:
                with self._api.current():
                    room.take(size, partial(self._api.reserve, size))
                self._prepared = True
            except Exception as problem:
                if not is_out_of_memory(problem):
                    return  # the first config to be timed says what is wrong
                # Less than the L2 has would leave some of it warm, and nobody could say how much.
                size = size // 2 if size // 2 >= self._api.l2_bytes else 0
        if not size and not self._prepared:
            self.l2, self._prepared = "warm", True
            self._conditions.remark(
                f"not enough device memory for the {self._flush_bytes / 2**20:.3g} MiB that "
                "flush the L2 cache, so kernels are timed with a warm cache; free some memory, "
                "or raise device_memory"
            )
        self._flush_bytes = size

    def warm(self, run: Runnable) -> Warm:
        """One launch: what has to come to rest is the device's clock, not the kernel."""
        with self._api.current():
            self._wake()
            warm = self._warm(self._execution(run, captured=False))
            self._conditions.used()
        return warm

    def warm_all(self, runs: Sequence[Runnable]) -> list[Warm]:
        """The same for several, some from one queue."""
        warms: list[Warm] = []
        with self._api.current():
            self._wake()
            executions = [self._execution(run, captured=False) for run in runs]
            guess = CudaWarm(1, 1.0, 0.0, host_ns=self._host_ns)
            known = [guess] * len(executions)
            while len(warms) < len(executions):
                some = executions[self._together(executions, known, len(warms))]
                start = self._api.clock()
                batch = self._queue(some, self._sleep_for(self._host_ns * len(some)))
                if batch.dry:
                    warms += [self._warm(execution) for execution in some]
                    continue
                self._host_ns = batch.host_ns
                seconds = (self._api.clock() - start) / len(some) / 1e9
                warms += [
                    CudaWarm(1, ns, seconds, kernel_s=ns / 1e9, host_ns=batch.host_ns)
                    for ns in batch.samples
                ]
            self._conditions.used()
        return warms

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        known = _known(warm)
        with self._api.current():
            self._conditions.check()
            execution = self._execution(run)
            most = self._most(execution, known)
            taken = _Taken()
            while len(taken.samples) < samples and taken.quality == "clean":
                count = min(samples - len(taken.samples), most)
                self._take(taken, [execution] * count, [known] * count)
            while len(taken.samples) < samples:
                taken.samples.extend(self._queue([execution]).samples)
            self._conditions.used()
        return self._reading(taken.samples, taken.quality, taken.discarded)

    def turn(self, runs: Sequence[Runnable], warms: Sequence[Warm]) -> list[Reading]:
        """One sample of each, in this order, from one full queue."""
        known = [_known(warm) for warm in warms]
        readings: list[Reading] = []
        with self._api.current():
            self._conditions.check()
            executions = [self._execution(run) for run in runs]
            while len(readings) < len(runs):
                first = len(readings)
                some = self._together(executions, known, first)
                taken = _Taken()
                self._take(taken, executions[some], known[some])
                if taken.quality == "clean":
                    share = taken.discarded // len(taken.samples)
                    readings += [self._reading([ns], "clean", share) for ns in taken.samples]
                    continue
                for execution in executions[some]:
                    lone = self._queue([execution]).samples
                    readings.append(self._reading(lone, taken.quality, taken.discarded))
                    taken.discarded = 0
            self._conditions.used()
        return readings

    def release(self) -> None:
        """Gives back device memory; the next measurement takes it again."""
        self._api.release()
        self._prepared = self._flush_bytes == 0
        if self._graphs is not None:
            self._graphs.clear()

    def _warm(self, execution: _Execution) -> CudaWarm:
        start = self._api.clock()
        first = self._queue([execution], self._sleep_for(self._host_ns))
        launches, host_ns, estimate = 1, first.host_ns, first.samples[0]
        queues = True
        if first.dry:
            # The events have also timed the host, which may have loaded the kernel.
            estimate = max(1.0, estimate - host_ns)
            host_ns = min(host_ns, MOST_OF_A_FIRST_LAUNCH * self._host_ns)
            if estimate <= SLOW_NS:
                hopeless = self._sleep_for(first.host_ns) > MAX_SLEEP_NS
                attempts = 1 if hopeless else 1 + MAX_RETRIES
                batch, thrown = self._filled([execution], host_ns, attempts)
                launches += thrown + 1
                if batch is None:
                    batch, queues = self._queue([execution]), False
                estimate, host_ns = batch.samples[0], batch.host_ns
        else:
            self._host_ns = host_ns
        return CudaWarm(
            loops=1,
            estimate_ns=estimate,
            seconds=(self._api.clock() - start) / 1e9,
            kernel_s=launches * estimate / 1e9,
            host_ns=host_ns,
            queues=queues,
        )

    def _wake(self) -> None:
        """Waits for a steady clock where the device may have been idle; calibrates once."""
        if not self._prepared:
            self.prepare(DeviceRoom())
        self._conditions.settle()
        if not self._calibrated:
            self.overhead_ns = event_pair_ns(self._api)
            self._calibrated = True

    def _take(
        self, taken: _Taken, executions: Sequence[_Execution], warms: Sequence[CudaWarm]
    ) -> None:
        attempts = 1 + MAX_RETRIES if all(warm.queues for warm in warms) else 1
        batch, thrown = self._filled(executions, sum(warm.host_ns for warm in warms), attempts)
        taken.discarded += thrown
        if batch is not None:
            taken.samples.extend(batch.samples)
            return
        taken.quality = "host_bound"
        self._conditions.remark(
            "the host was too slow to fill the GPU's queue, or a hook waits for the device; "
            "launches were timed one by one, which includes host time"
        )

    def _together(
        self, executions: Sequence[_Execution], warms: Sequence[CudaWarm], first: int
    ) -> slice:
        """As many from `first` on as one batch may hold."""
        last = first + 1
        share = 1 / self._most(executions[first], warms[first])
        while last < len(executions):
            share += 1 / self._most(executions[last], warms[last])
            if share > 1:
                break
            last += 1
        return slice(first, last)

    def _most(self, execution: _Execution, warm: CudaWarm) -> int:
        """How many samples one batch may hold."""
        operations = execution.operations + _FLUSH_OPERATIONS
        by_time = BATCH_NS / max(1.0, warm.estimate_ns)
        by_sleep = BATCH_SLEEP_NS / max(1.0, SLEEP_MARGIN * warm.host_ns)
        return max(1, min(QUEUED_OPERATIONS // operations, int(by_time), int(by_sleep)))

    @staticmethod
    def _sleep_for(host_ns: float) -> float:
        return SLEEP_FLOOR_NS + SLEEP_MARGIN * host_ns

    def _filled(
        self, executions: Sequence[_Execution], host_ns: float, attempts: int
    ) -> tuple[_Batch | None, int]:
        """A batch whose queue never ran dry, if there was one, and how many samples it cost."""
        sleep_ns = self._sleep_for(host_ns)
        if sleep_ns > MAX_SLEEP_NS:
            return None, 0
        for attempt in range(attempts):
            batch = self._queue(executions, sleep_ns)
            if not batch.dry:
                return batch, attempt * len(executions)
            sleep_ns *= 2
        return None, attempts * len(executions)

    def _queue(self, executions: Sequence[_Execution], sleep_ns: float = 0.0) -> _Batch:
        api, flush_bytes = self._api, self._flush_bytes
        pairs = [self._pair(index) for index in range(len(executions))]
        api.synchronize()
        if sleep_ns:
            api.sleep(round(sleep_ns * api.clock_khz / 1e6))
        self._gate.record()
        if sleep_ns:
            self._lead_in()
        began = api.clock()
        for execution, (start, end) in zip(executions, pairs, strict=True):
            execution.before()
            api.flush(flush_bytes)
            start.record()
            execution.launch(1)
            end.record()
            execution.after()
        dry = self._gate.query()
        host_ns = (api.clock() - began) / len(executions)
        api.synchronize()
        samples = tuple(self._sample_ns(start, end) for start, end in pairs)
        return _Batch(samples, host_ns, dry)

    def _lead_in(self) -> None:
        """What comes first after a sleep reads a little too long, so it is nobody's sample."""
        start, end = self._spare
        start.record()
        self._api.fill()
        end.record()

    def _pair(self, index: int) -> tuple[CudaEvent, CudaEvent]:
        while len(self._pairs) <= index:
            self._pairs.append((self._api.event(), self._api.event()))
        return self._pairs[index]

    def _sample_ns(self, start: CudaEvent, end: CudaEvent) -> float:
        # Events that read nothing at all would have no logarithm.
        raw = max(1.0, start.elapsed_ms(end) * 1e6)
        return max(raw - self.overhead_ns, raw / 10)

    def _reading(self, samples: Sequence[float], quality: Quality, discarded: int) -> Reading:
        kernel_s = (len(samples) + discarded) * median(samples) / 1e9
        return Reading(
            samples=tuple(samples),
            loops=1,
            timer=self.name,
            l2=self.l2,
            quality=quality,
            discarded=discarded,
            kernel_s=kernel_s,
            remarks=self._conditions.said(),
        )

    def _execution(self, run: Runnable, captured: bool = True) -> _Execution:
        if self._graphs is None or not captured:
            return _Execution(run, run.repeat)
        if run not in self._graphs:
            self._graphs[run] = self._api.captured(run)
        return _Execution(run, self._graphs[run])


def _known(warm: Warm) -> CudaWarm:
    if isinstance(warm, CudaWarm):
        return warm
    return CudaWarm(warm.loops, warm.estimate_ns, warm.seconds)


@dataclass(frozen=True)
class _Batch:
    """`dry`: the device may have waited for the host, and the samples may contain that."""

    samples: tuple[float, ...]
    host_ns: float
    dry: bool


class _Taken:
    """What one reading has so far."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self.discarded = 0
        self.quality: Quality = "clean"


class _Execution:
    """One launch with what belongs around it."""

    def __init__(self, run: Runnable, launch: Callable[[int], object]) -> None:
        hooks = (run.before, run.after) if isinstance(run, Hooked) else (None, None)
        self.launch = launch
        self.before: Callable[[], object] = hooks[0] or _nothing
        self.after: Callable[[], object] = hooks[1] or _nothing
        self.operations = _LAUNCH_OPERATIONS + _EVENT_OPERATIONS
        self.operations += _HOOK_OPERATIONS * sum(hook is not None for hook in hooks)


def _nothing() -> None:
    pass


# An idle device lowers its clock; a busy one may be throttled at any time.
IDLE_NS = 1_000_000_000
CHECK_EVERY_NS = 500_000_000
THROTTLED_BELOW = 0.95


class Conditions:
    """Looked at where they may have changed; what there is to say of them waits for `said`."""

    def __init__(self, api: CudaApi) -> None:
        self._api = api
        self._events = (api.event(), api.event())
        self._fastest_mhz = 0.0
        self._used: int | None = None
        self._checked: int | None = None
        self._remarks: list[str] = []

    def used(self) -> None:
        """The device was busy until now."""
        self._used = self._api.clock()

    def settle(self) -> None:
        """Waits for a steady clock where the device may have been idle."""
        if self._used is not None and self._api.clock() - self._used <= IDLE_NS:
            return
        found = wait_for_clock(self._api)
        self._fastest_mhz = max(self._fastest_mhz, found.mhz)
        if not found.steady:
            self.remark(
                "the GPU clock did not settle before timing; lock it (nvidia-smi "
                "--lock-gpu-clocks) for more stable results"
            )
        self._look_around()

    def check(self) -> None:
        """Looks, now and then, for what would disturb a timing from outside."""
        if self._checked is not None and self._api.clock() - self._checked < CHECK_EVERY_NS:
            return
        health = self._look_around()
        mhz = clock_mhz(self._api, self._events)
        if mhz is None:
            return
        if mhz < THROTTLED_BELOW * self._fastest_mhz:
            why = f" ({', '.join(health.held_back_by)})" if health.held_back_by else ""
            self.remark(
                f"the GPU clock has dropped to {100 * mhz / self._fastest_mhz:.0f} % of its "
                f"earlier value{why}; timings from before and after are compared only through "
                "re-checks"
            )
        self._fastest_mhz = max(self._fastest_mhz, mhz)

    def remark(self, text: str) -> None:
        self._remarks.append(text)

    def said(self) -> tuple[str, ...]:
        """What was remarked since this was last asked."""
        remarks, self._remarks = tuple(self._remarks), []
        return remarks

    def _look_around(self) -> Health:
        self._checked = self._api.clock()
        health = self._api.health()
        if health.others:
            others = ", ".join(map(str, health.others[:4]))
            self.remark(
                f"another process is using this GPU (pid {others}); its work affects the timings"
            )
        return health


PROBE_CYCLES = 100_000
LEAD_NS = 40e3

STEADY_WITHIN = 0.01
STEADY_PROBES = 3
MAX_PROBES = 400

CALIBRATION_SAMPLES = 15
CALIBRATION_TRIES = 4
CALIBRATION_LEAD_NS = 2e6


@dataclass(frozen=True)
class Steadiness:
    """`mhz` of the clock at the end, and whether it had come to rest."""

    mhz: float
    steady: bool


def clock_mhz(api: CudaApi, events: tuple[CudaEvent, CudaEvent]) -> float | None:
    """The clock now; None where the host was too slow for a clean reading."""
    start, end = events
    api.synchronize()
    # The host must be done queueing before the first event is reached.
    api.sleep(round(LEAD_NS * api.clock_khz / 1e6))
    start.record()
    api.sleep(PROBE_CYCLES)
    dry = start.query()
    end.record()
    api.synchronize()
    elapsed_us = 1e3 * start.elapsed_ms(end)
    return None if dry or elapsed_us <= 0 else PROBE_CYCLES / elapsed_us


def wait_for_clock(api: CudaApi) -> Steadiness:
    """Keeps the device busy until its clock has come to rest, or gives up."""
    events = (api.event(), api.event())
    last: list[float] = []
    for _ in range(MAX_PROBES):
        mhz = clock_mhz(api, events)
        if mhz is None:
            continue
        last = [*last[-(STEADY_PROBES - 1) :], mhz]
        if len(last) == STEADY_PROBES and max(last) <= (1 + STEADY_WITHIN) * min(last):
            return Steadiness(median(last), steady=True)
    return Steadiness(median(last) if last else 0.0, steady=False)


def event_pair_ns(api: CudaApi) -> float:
    """What two events read beyond the kernel between them."""

    def short() -> None:
        api.sleep(1)

    nothing: tuple[Callable[[], None], ...] = ()
    patterns = (nothing, (short,), (api.fill,), (short, api.fill))
    readings: list[list[float]] = [[] for _ in patterns]
    pairs = [(api.event(), api.event()) for _ in patterns]
    lead = CALIBRATION_LEAD_NS / 10
    for _ in range(CALIBRATION_TRIES * CALIBRATION_SAMPLES):
        taken = _one_of_each(api, patterns, pairs, lead)
        if taken is None:
            lead = min(2 * lead, CALIBRATION_LEAD_NS)
            continue
        for of_pattern, ns in zip(readings, taken, strict=True):
            of_pattern.append(ns)
        if len(readings[0]) == CALIBRATION_SAMPLES:
            break
    if not readings[0]:
        return 0.0
    around_nothing, one, other, both = map(median, readings)
    return max(around_nothing, one + other - both, 0.0)


def _one_of_each(
    api: CudaApi,
    patterns: Sequence[Sequence[Callable[[], None]]],
    pairs: Sequence[tuple[CudaEvent, CudaEvent]],
    lead_ns: float,
) -> list[float] | None:
    """One reading of every pattern from a full queue; None where it ran dry."""
    api.synchronize()
    api.sleep(round(lead_ns * api.clock_khz / 1e6))
    api.fill()  # what comes first after a sleep reads a little too long
    for pattern, (start, end) in zip(patterns, pairs, strict=True):
        start.record()
        for launch in pattern:
            launch()
        end.record()
    dry = pairs[0][0].query()
    api.synchronize()
    return None if dry else [1e6 * start.elapsed_ms(end) for start, end in pairs]
