"""The bench: where built configs are loaded, checked and timed, one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, runtime_checkable

from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.core.timing import median
from whet.measure.bench.gate import Verdict
from whet.measure.timer import Reading

# An artifact is whatever the target's build made and its loader takes. A bench never looks inside.
Built = tuple[Config, Any]


class Loaded(Protocol):
    """A config that can run: what a target gives for a built artifact.

    One that has nothing to compare its results with may say so with `compares = False`: its
    `check` then merely runs it once, which is booked as warming up.
    """

    @property
    def facts(self) -> Mapping[str, Value]:
        """What is known of the artifact once it is loaded: registers, size, hash…"""

    def repeat(self, n: int) -> None:
        """Runs it `n` times back to back, and returns when the last has ended."""

    def check(self) -> Verdict:
        """Runs it once and compares what came out with the reference."""

    def close(self) -> None: ...


@runtime_checkable
class FirstCall(Protocol):
    """A loaded config whose first call does more than the later ones: it compiles, fills a cache,
    starts threads. That part has its own limit and its own place in the ledger."""

    def first_call(self) -> None:
        """Called once after each loading, before anything else."""


class Loader(Protocol):
    """What a target gives to load its artifacts, in the process that measures.

    A loader may have `recover(problem) -> bool`, which frees what a failure left behind and says
    whether this process can still run anything.
    """

    def load(self, config: Config, artifact: Any) -> Loaded: ...


@dataclass(frozen=True)
class Hopeless:
    """When a warm-up alone says that a config has lost: so many times the best, and some more."""

    best_ns: float
    times: float
    slack_ns: float

    def includes(self, ns: float) -> bool:
        return ns > self.times * self.best_ns + self.slack_ns

    def after(self, ns: float) -> Hopeless:
        """The same once a config of `ns` is known."""
        return self if ns >= self.best_ns else replace(self, best_ns=ns)


@dataclass(frozen=True)
class FirstLook:
    """`seconds` by phase: `load`, `first_call`, `check`, `warmup`, `measure`; `measure.kernel` is
    part of one.
    `hopeless`: its warm-up was slower than it was allowed to be, and is all there is."""

    reading: Reading
    facts: FrozenMap[Value]
    seconds: FrozenMap[float]
    hopeless: bool = False


@dataclass(frozen=True)
class Round:
    """Samples of each config by id, taken in turn: one, or as many as it was named for, in order.
    Who failed has a failure instead."""

    readings: FrozenMap[Reading]
    failures: FrozenMap[ConfigFailure] = field(default_factory=FrozenMap)
    seconds: FrozenMap[float] = field(default_factory=FrozenMap)

    @property
    def times(self) -> dict[str, float]:
        return {id: median(reading.samples) for id, reading in self.readings.items()}


class Bench(Protocol):
    """What the engine measures on, and leaves with `with`.

    A config that cannot be measured raises `ConfigFailure` with status `run_error`,
    `run_timeout`, `resources` or `wrong_result` and a text for people; the bench can be used
    on, unless that failure `spoils` its process; then a call with several raises it rather than
    blame one of them. `limit_s` is for one config's part of a call, but for its first call, whose
    limit the bench was opened with. What is loaded stays so while there is room, and is loaded
    again when needed.
    """

    @property
    def in_process(self) -> bool:
        """True where a kernel runs in the caller's process, and can take it down."""

    def first(
        self,
        config: Config,
        artifact: Any,
        samples: int,
        *,
        limit_s: float | None = None,
        hopeless: Hopeless | None = None,
    ) -> FirstLook:
        """Loads, checks, warms up and takes the first samples, in one round trip.

        A config whose warm-up is `hopeless` gets no samples: its reading is the warm-up's, marked
        `contaminated`.
        """

    def looks(
        self,
        built: Sequence[Built],
        samples: int,
        *,
        limit_s: float | None = None,
        hopeless: Hopeless | None = None,
    ) -> list[FirstLook | ConfigFailure]:
        """The same for many short kernels, in one round trip; who fails has a failure instead."""

    def sample(
        self, config: Config, artifact: Any, samples: int, *, limit_s: float | None = None
    ) -> tuple[Reading, FrozenMap[float]]:
        """More samples, and the seconds by phase that they took."""

    def round(self, built: Sequence[Built], *, limit_s: float | None = None) -> Round:
        """One sample of each, in this order, in one round trip. One that is named several times
        has as many."""

    def forget(self, config: Config) -> None:
        """The config will not be measured again."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...
