"""The timer by itself: anything callable, alone or several in turns; nothing is tuned or stored."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, cast

from whet.core.budget import Budget
from whet.core.errors import UsageError
from whet.core.timing import L2, Quality, median_interval
from whet.engine.settings import resolve_settings
from whet.measure.racing.stats import Ratio, paired_ratio, time_text
from whet.measure.timer import Reading, Timer, Warm
from whet.measure.timers import CpuTimer
from whet.targets.base import host_device, refuse_lazy, refuse_unfinished

_CONFIDENCE = 0.95

# An interval needs six samples; beyond the most nothing is learnt that anybody would notice.
_LEAST_ROUNDS, _MOST_ROUNDS = 7, 2_000

# Precise enough to stop before the budget ends: half the width of an interval.
_ENOUGH = 0.002

# How many launches are queued to see what one costs the host.
_QUEUED = 20


@dataclass(frozen=True)
class Timed:
    """One callable. `low_ns` and `high_ns` are the 95 % interval of the median; `host_ns` is what a
    call takes the host where a GPU does the work. `speed` is how many times as fast as the first it
    is, from calls in turns, with its interval; None for the first, and where there are too few."""

    name: str
    median_ns: float
    low_ns: float
    high_ns: float
    samples: tuple[float, ...]
    quality: Quality
    host_ns: float | None = None
    speed: Ratio | None = None
    gflops: float | None = None
    gigabytes: float | None = None

    @property
    def differs(self) -> bool:
        """Whether it is shown to be faster or slower than the first."""
        return self.speed is not None and not self.speed.low <= 1.0 <= self.speed.high


@dataclass(frozen=True)
class Bench:
    """What `whet.bench` measured, in the order in which it was given."""

    rows: tuple[Timed, ...]
    device: str
    method: str
    seconds: float
    remarks: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Timed:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    @property
    def median_ns(self) -> float:
        """Of the first."""
        return self.rows[0].median_ns

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[list[str]]:
        """Headings, then a row for each callable, as texts."""
        first = self.rows[0]
        columns: list[tuple[str, Callable[[Timed], str]]] = [
            ("", lambda row: row.name),
            ("median", lambda row: time_text(row.median_ns)),
            ("95 % interval", lambda row: f"{time_text(row.low_ns)} to {time_text(row.high_ns)}"),
            ("samples", lambda row: f"{len(row.samples):,}"),
        ]
        if first.host_ns is not None:
            columns.append(("host", lambda row: time_text(row.host_ns or 0.0)))
        if first.gflops is not None:
            columns.append(("GFLOP/s", lambda row: f"{row.gflops:,.4g}"))
        if first.gigabytes is not None:
            columns.append(("GB/s", lambda row: f"{row.gigabytes:,.4g}"))
        if len(self.rows) > 1:
            columns.append((f"speed of {first.name}", _speed_text))
        return [[title for title, _ in columns]] + [
            [text(row) for _, text in columns] for row in self.rows
        ]

    def __str__(self) -> str:
        table = self.lines()
        wide = [max(len(line[at]) for line in table) for at in range(len(table[0]))]
        texts = []
        for line in table:
            cells = [line[0].ljust(wide[0])]
            cells += [cell.rjust(wide[at]) for at, cell in enumerate(line) if at]
            texts.append("  ".join(cells).rstrip())
        texts.append(f"{self.method}, on {self.device}, in {self.seconds:.1f} s")
        return "\n".join([*texts, *self.remarks])


def _speed_text(row: Timed) -> str:
    if row.speed is None:
        return ""
    low, middle, high = row.speed
    text = f"{middle:.3g}x ({low:.3g} to {high:.3g})"
    return text if row.differs else f"{text}, no difference shown"


def bench(
    fn: Callable[..., Any] | None = None,
    /,
    *args: Any,
    compare: Mapping[str, Callable[..., Any]] | None = None,
    budget: str | float = "2s",
    flops: float | None = None,
    bytes: float | None = None,
    l2: str | None = None,
    cuda_graph: bool | None = None,
    device: str | None = None,
) -> Bench:
    """How long `fn(*args)` takes: the median of many calls with its 95 % interval, by the clock
    that whet tunes with.

    With `compare`, each of these is called with the same arguments, all in turns, in another order
    each round, so that what the machine does meanwhile hits all alike; `fn` comes first where it is
    given, and the others are compared with the first.

    On a GPU it is the device's own time between two events from a full queue, with the L2 cleared
    before each launch (`l2="warm"` leaves it), and `cuda_graph` replays one launch; what a call
    takes the host is told beside it. Work has to be queued on the current stream. `device` is `cpu`
    or `cuda`; by default `cuda` where this process has used one.

    It ends once the intervals are within 0.2 %, and after the budget at the latest; a slow
    callable is called seven times all the same. `flops` and `bytes` of one call give GFLOP/s and
    GB/s.

        print(whet.bench(torch.mm, a, b, compare={"mine": mine}))
    """
    named = dict({} if fn is None else {_name(fn): fn}, **(compare or {}))
    if not named:
        raise UsageError("there is nothing to time; use whet.bench(fn, …) or compare={…}")
    for name, one in named.items():
        if not callable(one):
            raise UsageError(f"'{name}' has type {type(one).__name__} and cannot be called")
        refuse_lazy(one, f"'{name}'")
    if l2 not in (None, "cold", "warm"):
        raise UsageError(f"l2 is {l2!r}; use cold or warm")
    seconds = Budget.parse(budget).seconds
    if seconds is None:
        raise UsageError(f"budget is {budget!r}; give a time, such as 2s")
    timer, where = _timer(_place(device), l2, cuda_graph)
    calls = [_Call(one, args, f"'{name}'") for name, one in named.items()]
    return timed(timer, dict(zip(named, calls, strict=True)), seconds, where, flops, bytes)


def timed(
    timer: Timer,
    calls: Mapping[str, Any],
    seconds: float,
    device: str,
    flops: float | None = None,
    moved: float | None = None,
) -> Bench:
    """`calls` are runnable; each is called once before anything is timed."""
    began = time.monotonic()
    runs = list(calls.values())
    for run in runs:
        run.repeat(1)
    readings = _rounds(timer, runs, timer.warm_all(runs), began + seconds)
    first = [reading.samples[0] for reading in readings[0]]
    rows: list[Timed] = []
    for name, run, own in zip(calls, runs, readings, strict=True):
        samples = tuple(reading.samples[0] for reading in own)
        middle = sorted(samples)[len(samples) // 2]
        low, high = median_interval(samples, _CONFIDENCE) or (min(samples), max(samples))
        marks = [one.quality for one in own if one.quality != "clean"]
        rows.append(
            Timed(
                name,
                middle,
                low,
                high,
                samples,
                marks[0] if marks else "clean",
                _host_ns(run) if timer.grouped else None,
                paired_ratio(first, samples, _CONFIDENCE) if rows else None,
                None if flops is None else flops / middle,
                None if moved is None else moved / middle,
            )
        )
    said = dict.fromkeys(text for own in readings for one in own for text in one.remarks)
    if any(row.quality == "contaminated" for row in rows):
        said["other work disturbed some samples: times are rather too long than too short"] = None
    method = _method_text(timer)
    return Bench(tuple(rows), device, method, time.monotonic() - began, tuple(said))


def _rounds(
    timer: Timer, runs: Sequence[Any], warms: Sequence[Warm], deadline: float
) -> list[list[Reading]]:
    """Until all are known well enough, or the time is over."""
    readings: list[list[Reading]] = [[] for _ in runs]
    order = list(range(len(runs)))
    shuffle = random.Random(0).shuffle
    for done in range(1, _MOST_ROUNDS + 1):
        shuffle(order)
        if timer.grouped:
            some = timer.turn([runs[at] for at in order], [warms[at] for at in order])
        else:
            some = [_one(timer, runs[at], warms[at], primed=len(runs) > 1) for at in order]
        for at, reading in zip(order, some, strict=True):
            readings[at].append(reading)
        if done < _LEAST_ROUNDS:
            continue
        if time.monotonic() >= deadline or (done % 10 == 0 and all(map(_is_known, readings))):
            break
    return readings


def _one(timer: Timer, run: Any, warm: Warm, primed: bool) -> Reading:
    if primed and warm.estimate_ns < timer.primed_below_ns:
        run.repeat(1)  # its data and code are not in the caches after another one
    return timer.measure(run, 1, warm)


def _is_known(readings: Sequence[Reading]) -> bool:
    between = median_interval([one.samples[0] for one in readings], _CONFIDENCE)
    return between is not None and between[1] <= (1 + 2 * _ENOUGH) * between[0]


def _host_ns(run: Any) -> float:
    """What queueing one takes, of a few at a time."""
    spent = []
    for _ in range(5):
        sys.modules["torch"].cuda.synchronize()
        start = time.perf_counter_ns()
        run.repeat(_QUEUED)
        spent.append((time.perf_counter_ns() - start) / _QUEUED)
    return min(spent)


def _method_text(timer: Timer) -> str:
    if not timer.grouped:
        return "wall time of calls in a row"
    return f"device time, {timer.l2} L2" + (", from a CUDA graph" if "graph" in timer.name else "")


class _Call:
    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], what: str) -> None:
        self._call = partial(fn, *args)
        self._what = what
        self._started = False

    def repeat(self, n: int) -> None:
        call = self._call
        if not self._started:
            refuse_unfinished(call(), self._what)
            self._started, n = True, n - 1
        for _ in range(n):
            call()


def _name(fn: Any) -> str:
    return str(getattr(fn, "__name__", None) or type(fn).__name__)


def _place(device: str | None) -> str:
    if device not in (None, "cpu", "cuda"):
        raise UsageError(f"device is {device!r}; use cpu or cuda")
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if device == "cuda" and not (cuda is not None and cuda.is_available()):
        raise UsageError("torch finds no GPU in this process; use device='cpu'")
    return device or ("cuda" if cuda is not None and cuda.is_initialized() else "cpu")


def _timer(place: str, l2: str | None, cuda_graph: bool | None) -> tuple[Timer, str]:
    """And what it times on."""
    if place == "cpu":
        return CpuTimer(), host_device().name
    from whet.targets.triton import device

    settings = resolve_settings().settings
    index = int(sys.modules["torch"].cuda.current_device())
    graph = settings.cuda_graph if cuda_graph is None else cuda_graph
    kept = settings.l2 if l2 is None else cast("L2", l2)
    found = device.timer(index, kept, settings.l2_bytes, graph)
    return found, device.describe(index).name
