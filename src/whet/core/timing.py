"""`Timing`: what was measured, and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

from whet.core.decoding import one_of, text, whole
from whet.core.lazy import cached_property

Quality = Literal["clean", "contaminated", "host_bound"]
L2 = Literal["none", "warm", "cold"]

_NUMBERS = frozenset({float, int})
_L2_STATES: tuple[L2, ...] = get_args(L2)
_QUALITIES: tuple[Quality, ...] = ("clean", "contaminated", "host_bound")

CONFIDENCE = 0.95


def median(samples: Sequence[float]) -> float:
    ordered = sorted(samples)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


@lru_cache(maxsize=1024)
def _order_ranks(n: int, confidence: float) -> tuple[int, int] | None:
    """The pair of ranks whose values enclose the median with at least `confidence`.

    The number of samples below the true median is Binomial(n, 1/2), so this needs no assumption
    about the noise. None while n is too small to promise that much (n < 6 at 95 %).
    """
    below = 0.0
    low = -1
    for k in range(n // 2):
        below += math.comb(n, k) / 2**n
        if 1 - 2 * below < confidence:
            break
        low = k
    return None if low < 0 else (low, n - 1 - low)


def median_interval(
    samples: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """A confidence interval of the median, or None where there are too few samples for one."""
    ranks = _order_ranks(len(samples), confidence)
    if ranks is None:
        return None
    ordered = sorted(samples)
    return ordered[ranks[0]], ordered[ranks[1]]


@dataclass(frozen=True)
class Summary:
    """Somebody else's benchmark result: kept as it came, never mixed with our samples."""

    median_ns: float
    low_ns: float
    high_ns: float
    source: str

    def to_json(self) -> dict[str, Any]:
        return {
            "median_ns": self.median_ns,
            "low_ns": self.low_ns,
            "high_ns": self.high_ns,
            "source": self.source,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Summary:
        median_ns, low_ns, high_ns = (data[name] for name in ("median_ns", "low_ns", "high_ns"))
        if not _NUMBERS.issuperset(map(type, (median_ns, low_ns, high_ns))):
            raise ValueError("a time is not a number")
        return cls(median_ns, low_ns, high_ns, text(data, "source"))


@dataclass(frozen=True)
class Method:
    """How timings are taken. Those of two methods are never compared."""

    timer: str
    l2: L2 = "none"

    @classmethod
    def on_gpu(
        cls, cleared: int, l2_bytes: int, *, fresh: bool = False, graph: bool = False
    ) -> Method:
        """With so many bytes cleared before each launch. Fewer than the L2 holds leave some of it
        warm, so then the timer's name has them: `cuda-4194304`; and where launches find nothing of
        kernels before them in the multiprocessors either, it says so: `cuda+fresh`."""
        name = "cuda-graph" if graph else "cuda"
        name += f"-{cleared}" if 0 < cleared < l2_bytes else ""
        return cls(f"{name}+fresh" if fresh else name, "cold" if cleared else "warm")


@dataclass(frozen=True)
class Timing:
    """Raw samples in nanoseconds per execution; everything else is derived from them.

    `loops` is how many executions one sample averaged over; `discarded` counts samples that the
    timer took and would not vouch for.
    """

    samples: tuple[float, ...]
    timer: str
    loops: int = 1
    l2: L2 = "none"
    quality: Quality = "clean"
    discarded: int = 0
    foreign: Summary | None = None

    def __repr__(self) -> str:
        median_ns = f"{self.median_ns:,.1f} ns, " if self.samples or self.foreign else ""
        return (
            f"Timing({median_ns}{len(self.samples)} samples, timer={self.timer!r}, "
            f"l2={self.l2!r}, quality={self.quality!r})"
        )

    @property
    def method(self) -> Method:
        return Method(self.timer, self.l2)

    @cached_property
    def host_bound(self) -> bool:
        """Timed one launch at a time: never compared with what was not."""
        return self.quality == "host_bound"

    @cached_property
    def median_ns(self) -> float:
        if self.foreign is not None:
            return self.foreign.median_ns
        return median(self.samples)

    @cached_property
    def interval_ns(self) -> tuple[float, float] | None:
        if self.foreign is not None:
            return self.foreign.low_ns, self.foreign.high_ns
        return median_interval(self.samples)

    def extended(self, later: Timing) -> Timing:
        """With the samples of a later reading of the same kind; as trustworthy as the worse."""
        worse = max(self.quality, later.quality, key=_QUALITIES.index)
        return replace(
            self,
            samples=(*self.samples, *later.samples),
            quality=worse,
            discarded=self.discarded + later.discarded,
        )

    def taken_like(self, other: Timing) -> bool:
        """False where comparing the two would compare ways of measuring instead. What a busy
        machine has disturbed was still taken in the same way."""
        return (
            self.method == other.method
            and self.host_bound == other.host_bound
            and (self.foreign is None) == (other.foreign is None)
        )

    def comparable(self, other: Timing) -> bool:
        """Taken in the same way, and as trustworthy."""
        return self.taken_like(other) and self.quality == other.quality

    def meta_json(self) -> dict[str, Any]:
        """All but the samples, which a store keeps in a denser form."""
        meta: dict[str, Any] = {
            "v": 1,
            "timer": self.timer,
            "loops": self.loops,
            "l2": self.l2,
            "quality": self.quality,
            "discarded": self.discarded,
        }
        if self.foreign is not None:
            meta["foreign"] = self.foreign.to_json()
        return meta

    def to_json(self) -> dict[str, Any]:
        return {**self.meta_json(), "samples_ns": list(self.samples)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], samples: Sequence[float] | None = None) -> Timing:
        foreign = data.get("foreign")
        taken = tuple(data["samples_ns"] if samples is None else samples)
        if not _NUMBERS.issuperset(map(type, taken)):
            raise ValueError("a sample is not a number")
        return cls(
            samples=taken,
            timer=text(data, "timer"),
            loops=whole(data, "loops"),
            l2=one_of(data, "l2", _L2_STATES),
            quality=one_of(data, "quality", _QUALITIES),
            discarded=whole(data, "discarded"),
            foreign=None if foreign is None else Summary.from_json(foreign),
        )
