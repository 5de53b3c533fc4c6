"""What the CUDA timer finds out about the device before it times anything.

- The clock, from how long a kernel sleeps that counts cycles: until it is steady nothing is timed,
  and a fall later on is throttling.
- What two events cost. Around one kernel they read more than it takes. An empty kernel's reading
  is too much to take off, since an empty kernel takes a microsecond itself. But two events around
  nothing read only their own cost; and with two different kernels between them they read one cost
  and both kernels, so that `E(a) + E(b) - E(a then b)` is the cost as well, less the gap
  between a and b. Neither can be too large: the larger one is taken off. All that only as long as
  the kernels' code is at hand: when it has to be fetched, that of b is fetched while a runs, and
  half a microsecond too much would come off. So nothing is cleared in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from whet.core.timing import median
from whet.measure.gpu.torch_device import CudaApi, CudaEvent

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
