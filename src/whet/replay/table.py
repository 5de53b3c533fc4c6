"""`Table`: all that an exhaustive measurement found, so that tuning can be simulated from it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from whet.core.config import Config, Value
from whet.core.errors import SpaceError, UsageError
from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property
from whet.core.shown import drawn
from whet.core.space import Categorical, Ordered, Parameter, Permutation, Space
from whet.core.status import Status
from whet.core.timing import L2, Quality
from whet.core.workload import Device, Workload

Integers = npt.NDArray[np.int64]

# About 26 days, and far from where sums of 64-bit integers wrap.
LONGEST_NS = 1 << 51

_PLAIN: dict[str, type[Ordered] | type[Categorical]] = {
    kind.kind: kind for kind in (Ordered, Categorical)
}

# Seconds in a table are whole multiples of 0.1 ms.
TICKS_PER_S = 10_000
LONGEST_ERROR = 300


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


@dataclass(frozen=True)
class Declared:
    """Constraints are expressions, never code: reading them runs nothing."""

    parameters: tuple[Parameter, ...]
    constraints: tuple[str, ...] = ()

    @classmethod
    def of(cls, space: Space) -> Declared | None:
        """None for what parameters and expressions do not say: a list, a Python predicate."""
        declared = cls(space.parameters, space.constraints)
        try:
            return declared if declared.space().id == space.id else None
        except SpaceError:
            return None

    def space(self) -> Space:
        return Space(self.parameters, self.constraints)

    def to_json(self) -> dict[str, Any]:
        return {
            "parameters": [_parameter_json(parameter) for parameter in self.parameters],
            "constraints": list(self.constraints),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Declared:
        parameters = tuple(_parameter(one) for one in data["parameters"])
        constraints = tuple(data["constraints"])
        if not all(isinstance(text, str) for text in constraints):
            raise ValueError("a constraint is not a string")
        declared = cls(parameters, constraints)
        declared.space()
        return declared


def _parameter_json(parameter: Parameter) -> dict[str, Any]:
    listed = parameter.items if isinstance(parameter, Permutation) else parameter.values
    return {"kind": parameter.kind, "name": parameter.name, "values": list(listed)}


def _parameter(data: Mapping[str, Any]) -> Parameter:
    kind, name, values = data["kind"], data["name"], data["values"]
    if kind == Permutation.kind:
        return Permutation(name, values)
    if kind not in _PLAIN:
        raise ValueError(f"parameter '{name}' has the unknown kind '{kind}'")
    return _PLAIN[kind](name, values)


def rounded(seconds: float) -> float:
    return round(seconds * TICKS_PER_S) / TICKS_PER_S


def canonical(key: Mapping[str, Any]) -> str:
    """Equal for equal keys, where 1, 1.0 and True differ as they do in configs."""
    return json.dumps(dict(key), sort_keys=True, separators=(",", ":"))


def first_line(error: str) -> str:
    return error.strip().partition("\n")[0].rstrip()[:LONGEST_ERROR]


@dataclass(frozen=True)
class TableOrigin:
    """How a table came about. `date` is the day of the last measurement, as in "2026-01-31";
    `source` is whose format it was read from."""

    timer: str = ""
    l2: L2 = "none"
    whet: str = ""
    date: str = ""
    source: str = "whet"


@dataclass(frozen=True)
class Build:
    """One config's build, which all workloads share.

    `seconds` is None where nobody timed it; stages add up to it or to less. Seconds are rounded to
    0.1 ms and `error` is cut to its first line; a fact of None is no fact and is dropped.
    """

    status: Status
    seconds: float | None = None
    stages: FrozenMap[float] = field(default_factory=FrozenMap)
    error: str = ""
    facts: FrozenMap[Value] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        known = {name: value for name, value in self.facts.items() if value is not None}
        if self.seconds is not None:
            object.__setattr__(self, "seconds", rounded(self.seconds))
        stages = {stage: rounded(spent) for stage, spent in self.stages.items()}
        object.__setattr__(self, "stages", FrozenMap(stages))
        object.__setattr__(self, "error", first_line(self.error))
        object.__setattr__(self, "facts", FrozenMap(known))


@dataclass(frozen=True)
class Optimum:
    index: int
    ns: float


@dataclass(frozen=True)
class TableOutcome:
    """What became of one config on one workload; None is: never tried there.

    `first_ns` is how long its first launch took, and `seconds` what an evaluation spent by phase
    (`load`, `check`, `warmup`, `measure`), where these are known. Only a config that was measured
    has visits, and then at least one.
    """

    status: Status | None = None
    visits: tuple[tuple[float, ...], ...] = ()
    quality: Quality = "clean"
    first_ns: float | None = None
    seconds: FrozenMap[float] = field(default_factory=FrozenMap)
    error: str = ""


@dataclass(frozen=True)
class TableWorkload:
    """One key, and the outcome of every config of the table on it, by the config's index.

    `qualities` and `errors` have only what differs from clean and from none; `spent` is by phase,
    in 0.1 ms, and `first` in nanoseconds, each with -1 for unknown.
    """

    key: FrozenMap[Any]
    statuses: tuple[Status | None, ...]
    visits: Visits
    qualities: FrozenMap[Quality] = field(default_factory=FrozenMap)
    first: tuple[int, ...] = ()
    spent: FrozenMap[tuple[int, ...]] = field(default_factory=FrozenMap)
    errors: FrozenMap[str] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        lengths = [len(self.visits), *map(len, self.spent.values())]
        lengths += [len(self.first)] if self.first else []
        if any(length != len(self.statuses) for length in lengths):
            raise ValueError("its columns do not all match the number of configs")
        measured = [status is not None and status.measured for status in self.statuses]
        if not np.array_equal(self.visits.counts > 0, np.array(measured, dtype=bool)):
            raise ValueError("a measured config has no samples, or an unmeasured one has some")

    @classmethod
    def of(cls, key: Mapping[str, Any], outcomes: Sequence[TableOutcome]) -> TableWorkload:
        """One outcome for each config of the table, in the table's order."""
        phases = sorted({phase for outcome in outcomes for phase in outcome.seconds})
        ticks = {
            phase: tuple(_or_unknown(one.seconds.get(phase), TICKS_PER_S) for one in outcomes)
            for phase in phases
        }
        first = tuple(_or_unknown(outcome.first_ns, 1) for outcome in outcomes)
        errors = {str(at): first_line(one.error) for at, one in enumerate(outcomes)}
        qualities = {str(at): one.quality for at, one in enumerate(outcomes)}
        return cls(
            key=FrozenMap(key),
            statuses=tuple(outcome.status for outcome in outcomes),
            visits=Visits.of([outcome.visits for outcome in outcomes]),
            qualities=FrozenMap({at: one for at, one in qualities.items() if one != "clean"}),
            first=first if any(ns >= 0 for ns in first) else (),
            spent=FrozenMap(ticks),
            errors=FrozenMap({at: error for at, error in errors.items() if error}),
        )

    def status(self, at: int) -> Status | None:
        """None where the config was never tried on this workload."""
        return self.statuses[at]

    def samples(self, at: int) -> tuple[tuple[float, ...], ...]:
        """Nanoseconds, visit by visit; empty where the config was not measured."""
        return self.visits[at]

    def quality(self, at: int) -> Quality:
        return self.qualities.get(str(at), "clean")

    def error(self, at: int) -> str:
        return self.errors.get(str(at), "")

    def first_ns(self, at: int) -> float | None:
        """How long the first launch took, where that is known."""
        return float(self.first[at]) if self.first and self.first[at] >= 0 else None

    def seconds(self, at: int) -> FrozenMap[float]:
        """What the first visit spent by phase, to 0.1 ms, where that is known."""
        return FrozenMap(
            {
                phase: ticks[at] / TICKS_PER_S
                for phase, ticks in self.spent.items()
                if ticks[at] >= 0
            }
        )

    def median_ns(self, at: int) -> float | None:
        """Over the samples of all visits."""
        median = float(self.visits.medians[at])
        return None if math.isnan(median) else median

    @property
    def medians(self) -> npt.NDArray[np.float64]:
        """All of `median_ns` at once, NaN where there is none."""
        return self.visits.medians

    @cached_property
    def optimum(self) -> Optimum | None:
        """The first config with the lowest median; None where nothing was measured.

        What was timed less than cleanly counts only where nothing was timed cleanly.
        """
        clean = self.medians.copy()
        clean[[int(at) for at in self.qualities]] = np.nan
        medians = self.medians if np.isnan(clean).all() else clean
        if np.isnan(medians).all():
            return None
        best = int(np.nanargmin(medians))
        return Optimum(best, float(medians[best]))


@dataclass(frozen=True)
class Table:
    """One kernel on one device: its configs, how each was built, and every workload measured.

    `declared` is the space as its author gave it, None for a list; `notes` say what a reader should
    know of the file, for one that it was cut off.
    """

    kernel: str
    fingerprint: str
    device: Device
    configs: tuple[Config, ...]
    builds: tuple[Build, ...]
    workloads: tuple[TableWorkload, ...]
    toolchain: FrozenMap[str] = field(default_factory=FrozenMap)
    origin: TableOrigin = field(default_factory=TableOrigin)
    declared: Declared | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)

    _repr_html_ = drawn

    def __post_init__(self) -> None:
        if len(self.builds) != len(self.configs):
            raise ValueError(f"it has {len(self.configs)} configs but {len(self.builds)} builds")
        if len(self._rows) != len(self.configs):
            raise ValueError("a config is listed twice")
        for workload in self.workloads:
            if len(workload.statuses) != len(self.configs):
                raise ValueError(f"workload {dict(workload.key)} does not match the listed configs")
        if len({canonical(workload.key) for workload in self.workloads}) != len(self.workloads):
            raise ValueError("a key is listed twice")

    @cached_property
    def space(self) -> Space:
        """As its author gave it, or the list of the table's configs."""
        return Space(self.configs) if self.declared is None else self.declared.space()

    def index(self, config: Mapping[str, Any]) -> int | None:
        """Where a config stands in `configs`; None where the table knows nothing of it."""
        return self._rows.get(config if isinstance(config, Config) else Config(config))

    def workload(self, key: Mapping[str, Any]) -> TableWorkload:
        for workload in self.workloads:
            if canonical(workload.key) == canonical(key):
                return workload
        raise UsageError(f"the table of {self.kernel} has no workload {dict(key)}")

    def key_text(self, workload: TableWorkload, between: str = " ") -> str:
        """`M=64 N=32`: what tells the workload from the table's others, all of it if alone."""
        keys = [one.key for one in self.workloads]
        shown = [
            name for name in workload.key if len({repr(key.get(name)) for key in keys}) > 1
        ] or list(workload.key)
        return between.join(f"{name}={workload.key[name]}" for name in shown)

    def status(self, workload: TableWorkload, at: int) -> Status | None:
        """What became of a config there; a build that failed has failed for every workload."""
        build = self.builds[at].status
        return build if workload.statuses[at] is None and build.failed else workload.statuses[at]

    def described(self, workload: TableWorkload) -> Workload:
        """The workload in the terms that targets, stores and models use."""
        return Workload(self.kernel, self.fingerprint, self.device, workload.key, self.toolchain)

    @cached_property
    def typical_build_s(self) -> float:
        """The median of the builds that somebody timed; 0 where nobody did."""
        known = [build.seconds for build in self.builds if build.seconds is not None]
        return float(np.median(known)) if known else 0.0

    @cached_property
    def _rows(self) -> dict[Config, int]:
        return {config: at for at, config in enumerate(self.configs)}


def _or_unknown(amount: float | None, scale: int) -> int:
    return -1 if amount is None else round(amount * scale)
