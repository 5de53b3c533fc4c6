"""The bench: where built configs are loaded, checked and timed, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, runtime_checkable

from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.measure.bench.gate import Verdict
from whet.measure.timer import Hopeless, Reading

# An artifact is whatever the target's build made and its loader takes. A bench never looks inside.
Built = tuple[Config, Any]


class Loaded(Protocol):
    """A config that can run: what a target gives for a built artifact.

    It may be a `FirstCall`, `MayCompare`, or `Hooked` as any `Runnable`.
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


@runtime_checkable
class MayCompare(Protocol):
    """A loaded config that says whether it has anything to compare its results with. Where not,
    its `check` merely runs it once, which is booked as warming up."""

    @property
    def compares(self) -> bool: ...


class Loader(Protocol):
    """What a target gives to load its artifacts, in the process that measures; it may be
    `Recovering`."""

    def load(self, config: Config, artifact: Any) -> Loaded: ...


@runtime_checkable
class Recovering(Protocol):
    """A loader that knows whether all is lost with a failure."""

    def recover(self, problem: BaseException) -> bool:
        """Frees what the failure left behind; whether this process can still run anything."""


@dataclass(frozen=True)
class Visit:
    """What is asked of a bench: so many samples of each, in this order, in one round trip.

    With `first`, each config is loaded, checked and warmed up before, whatever was known of it. One
    whose warm-up is `hopeless` then gets no samples: its reading is the warm-up's, marked
    `contaminated`. One of which a single run takes longer than `spare_s` gets one sample. Without
    `first`, one that is named several times is sampled as often. `limit_s` is for one config's part
    of it, but for its first call, whose limit the bench was opened with.
    """

    built: tuple[Built, ...]
    samples: int
    first: bool = False
    limit_s: float | None = None
    hopeless: Hopeless | None = None
    spare_s: float | None = None

    def samples_of(self, ns: float) -> int:
        """How many samples of a config whose single run takes so long."""
        return 1 if self.spare_s is not None and ns > 1e9 * self.spare_s else self.samples

    def of(self, *built: Built) -> Visit:
        """The same for these alone."""
        return replace(self, built=built)

    @property
    def ids(self) -> list[str]:
        """Each config once, in the order of the answers."""
        return list(dict.fromkeys([config.id for config, _ in self.built]))


@dataclass(frozen=True)
class Sampled:
    """`seconds` by phase: `load`, `first_call`, `check`, `warmup`, `measure`; `measure.kernel` is
    part of one. `facts` are those of a first visit.
    `hopeless`: its warm-up was slower than it was allowed to be, and is all there is."""

    reading: Reading
    seconds: FrozenMap[float]
    facts: FrozenMap[Value] = field(default_factory=FrozenMap)
    hopeless: bool = False


Answer = Sampled | ConfigFailure


class Bench(Protocol):
    """What the engine measures on, and leaves with `with`. What is loaded stays so while there is
    room, and is loaded again when needed."""

    @property
    def in_process(self) -> bool:
        """True where a kernel runs in the caller's process, and can take it down."""

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        """One answer for each config, in the order in which they are first named; one that is named
        several times has its samples in the order they were taken.

        A config that cannot be measured is answered with a `ConfigFailure` of status `run_error`,
        `run_timeout`, `resources` or `wrong_result` and a text for people; the bench can be used
        on. One that `spoils` the caller's own process is raised, since nothing can run after it
        and nobody else may be blamed for that.
        """

    def forget(self, config: Config) -> None:
        """The config will not be measured again."""

    def end_call(self) -> None:
        """Ends the call under way, from another thread: its config has crashed. A kernel in the
        caller's process cannot be ended."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


@runtime_checkable
class Wide(Protocol):
    """A bench that looks at several configs at the same time, on as many devices."""

    @property
    def width(self) -> int:
        """How many are best looked at in one visit."""
