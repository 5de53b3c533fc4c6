"""`Visits`: the samples of every config on one workload, as whole nanoseconds in one array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from whet.core.lazy import cached_property

Integers = npt.NDArray[np.int64]

# About 26 days, and far from where sums of 64-bit integers wrap.
LONGEST_NS = 1 << 51


@dataclass(frozen=True, eq=False)
class Visits:
    """A config is visited any number of times, and samples taken in one visit belong together.

    `flat` has all samples, config by config; `sizes` how many each visit took, in the same order;
    `counts` how many visits each config got. Every visit has a sample, every sample lasts.
    """

    flat: Integers
    sizes: Integers
    counts: Integers

    def __post_init__(self) -> None:
        if self.counts.size and self.counts.min() < 0:
            raise ValueError("a config has a negative number of visits")
        if self.sizes.size and self.sizes.min() < 1:
            raise ValueError("a visit has no samples")
        # Python's sums do not wrap, so that no size can be made to look like a smaller one.
        if sum(self.counts.tolist()) != self.sizes.size:
            raise ValueError("the visits do not match their configs")
        if sum(self.sizes.tolist()) != self.flat.size:
            raise ValueError("the samples do not match their visits")
        if self.flat.size and not 0 < self.flat.min() <= self.flat.max() <= LONGEST_NS:
            raise ValueError("a sample is shorter than 1 ns or implausibly long")
        for array in (self.flat, self.sizes, self.counts):
            array.setflags(write=False)

    @classmethod
    def of(cls, configs: Iterable[Sequence[Sequence[float]]]) -> Visits:
        """`Visits.of([[[10, 11], [12]], []])`: two visits to the first config, none to the second.

        Samples are rounded to whole nanoseconds, and to one at least.
        """
        listed = [list(visits) for visits in configs]
        visits = [visit for config in listed for visit in config]
        flat = np.array([sample for visit in visits for sample in visit], dtype=np.float64)
        if not np.isfinite(flat).all():
            raise ValueError("a sample is not a finite number")
        return cls(
            np.maximum(np.rint(flat), 1).astype(np.int64),
            np.array([len(visit) for visit in visits], dtype=np.int64),
            np.array([len(config) for config in listed], dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, at: int) -> tuple[tuple[float, ...], ...]:
        starts = self._visit_starts
        of_config = range(int(self._config_starts[at]), int(self._config_starts[at + 1]))
        return tuple(
            tuple(map(float, self.flat[starts[visit] : starts[visit + 1]].tolist()))
            for visit in of_config
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Visits) and all(
            np.array_equal(mine, theirs)
            for mine, theirs in (
                (self.flat, other.flat),
                (self.sizes, other.sizes),
                (self.counts, other.counts),
            )
        )

    def __hash__(self) -> int:
        return hash((self.flat.tobytes(), self.sizes.tobytes(), self.counts.tobytes()))

    @cached_property
    def starts(self) -> Integers:
        """Where in `flat` the samples of each config begin, and where the last ones end."""
        return self._visit_starts[self._config_starts]

    @cached_property
    def medians(self) -> npt.NDArray[np.float64]:
        """Each config's median over all its visits, NaN where it has none."""
        taken = np.diff(self.starts)
        owner = np.repeat(np.arange(len(taken)), taken)
        ordered = self.flat[np.lexsort((self.flat, owner))]
        medians = np.full(len(taken), np.nan)
        has = taken > 0
        first, count = self.starts[:-1][has], taken[has]
        medians[has] = (ordered[first + (count - 1) // 2] + ordered[first + count // 2]) / 2
        medians.setflags(write=False)
        return medians

    @cached_property
    def _visit_starts(self) -> Integers:
        return _starts(self.sizes)

    @cached_property
    def _config_starts(self) -> Integers:
        return _starts(self.counts)


def _starts(sizes: Integers) -> Integers:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
