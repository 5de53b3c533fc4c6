"""The contract of a target: what the engine needs to know of something that can be tuned."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from pathlib import Path

    from whet.builds.job import Job
    from whet.builds.shared import SharedPool
    from whet.core.config import Config, Value
    from whet.core.miss import Argument, LaunchGrid
    from whet.core.space import Space
    from whet.core.timing import Method
    from whet.core.workload import Workload
    from whet.measure.bench.bits import BitCheck
    from whet.measure.bench.protocol import Bench
    from whet.workers.session import OpenSession


@dataclass(frozen=True)
class BenchLimits:
    """What a measuring process may use; None is no limit of ours. `device_bytes` is for what the
    tuning itself allocates on a device, beside what the kernels need. `first_call_s` is asked, at
    each call, how long a config's first one may take: that depends on what is left of the budget.

    `isolate` asks for a bench in a process of its own, from a target that would measure in this
    one. A target that cannot do so gives the bench it has, whose `in_process` tells.
    `open_session` starts that process for the device of this name, and `elsewhere` says that it
    cannot reach files and memory of this machine.
    """

    memory_bytes: int | None = None
    isolate: bool = False
    device_bytes: int | None = None
    first_call_s: Callable[[], float] | None = field(default=None, compare=False)
    open_session: OpenSession | None = field(default=None, compare=False)
    elsewhere: bool = False
    device: str = ""


@runtime_checkable
class Target(Protocol):
    """Something with knobs.

    - `space` is what may be chosen; its first config is the author's own.
    - `shares_host` says that building and running compete for the same cores, so the engine does
      not build while it measures.
    - `method` is how its bench will measure; None where that is not known, and then everything that
      is stored compares. Once a bench is open it is how that one does.
    - `workload()` may be slow the first time (it asks the compiler for its version).
    - `reject` refuses a config from its numbers alone, with the reason.
    - `job` is what a pool worker can receive; None where there is nothing to build. It must survive
      a kernel that was defined in `__main__`, in a notebook or in a closure; `build_mode` says
      which kind of worker that takes.
    - `bench` opens the place where artifacts are loaded, checked and timed.
    - `twin` is equal for configs that run the very same thing, so that one is measured for all;
      None where that cannot be told.
    - `features` describes a config to models, so that no other room knows what a tile is.

    What a target may have, each by itself: `mode`, whether it may be tuned; `lock`, the file that
    alone says what is chosen; `bit_check`, by which its configs must give the same bits; `samples`,
    how many are taken of each config; `source_text`, for a strategy that reads it. None is as if it
    had none.

    What else it may be: `QuickSpace`, `FromFile`, `Claiming`, `Placeable`, `KeepsCode`,
    `BuiltAhead`, `DividedBuilds`, `OnDevices`, `Traceable`, `Relaunchable`.
    """

    @property
    def name(self) -> str: ...

    @property
    def space(self) -> Space: ...

    @property
    def shares_host(self) -> bool: ...

    @property
    def build_mode(self) -> str: ...

    @property
    def method(self) -> Method | None: ...

    def workload(self) -> Workload: ...

    def reject(self, config: Config) -> str | None: ...

    def job(self, config: Config) -> Job | None: ...

    def bench(self, limits: BenchLimits) -> Bench: ...

    def twin(self, config: Config, facts: Mapping[str, Value]) -> Hashable | None: ...

    def features(self, config: Config) -> Mapping[str, float]: ...


# Every look-up asks these. In Python 3.11 `isinstance` lists a protocol's members each time, which
# takes as long as finding a row among ten thousand.
def bit_check_of(target: object) -> BitCheck | None:
    """None where its configs need not give the same bits."""
    return getattr(target, "bit_check", None)


def quick_space(target: object) -> QuickSpace | None:
    """The target, where it is one; None else."""
    quick = hasattr(target, "offers") and hasattr(target, "first")
    return cast("QuickSpace", target) if quick else None


@runtime_checkable
class QuickSpace(Protocol):
    """A target whose space takes long to list, and that can answer two questions without it."""

    def first(self) -> Config | None:
        """What `space.first` would be."""

    def offers(self, config: Config) -> bool:
        """Whether the config is in the space."""


@runtime_checkable
class DividedBuilds(Protocol):
    """A target whose jobs have a first part, after which any machine can go on."""

    @property
    def divides_builds(self) -> bool: ...


@runtime_checkable
class FromFile(Protocol):
    """A target that knows the file it was made in."""

    @property
    def file(self) -> str: ...


@runtime_checkable
class Claiming(Protocol):
    """A target whose key has values under names that its source captures as well."""

    @property
    def claims(self) -> Mapping[str, Any]: ...


@runtime_checkable
class Placeable(Protocol):
    """A target that can be told where it was found, as `FILE.py:NAME`."""

    def placed(self, place: str) -> Target: ...


@runtime_checkable
class KeepsCode(Protocol):
    """A target that can leave in a folder what becomes of a config on its way to the binary."""

    def keeping(self, folder: Path) -> Target: ...


class Ahead(Protocol):
    """Builds that have begun in `pool`. The configs that were `built_ahead` are looked at whatever
    the strategy asks for, since they are paid for."""

    @property
    def pool(self) -> SharedPool: ...

    @property
    def built_ahead(self) -> Sequence[Config]: ...


@runtime_checkable
class BuiltAhead(Protocol):
    """A target whose builds may have begun before its run; None where they have not."""

    def ahead(self) -> Ahead | None: ...


@runtime_checkable
class OnDevices(Protocol):
    """A target that can be measured on several devices of this host, each in a process of its
    own. `device_names` are those there are; `device_environment` is what a process has in its
    environment to see this one alone."""

    def device_names(self) -> Sequence[str]: ...

    def device_environment(self, name: str) -> Mapping[str, str]: ...


@runtime_checkable
class Traceable(Protocol):
    """A target that can say how it would be tuned from the command line.

    `defined_at` is `FILE.py:NAME`, empty where no name in any module leads to it;
    `call_arguments` are those of the call, by name; `tune_key` is what `--key` takes, None for
    a target without one; `tune_remedy` tells somebody to tune it, with the command where that is
    enough.
    """

    def defined_at(self) -> str: ...

    def call_arguments(self) -> Mapping[str, Any]: ...

    def tune_key(self) -> Mapping[str, Any] | None: ...

    def tune_remedy(self, command: str) -> str: ...


@runtime_checkable
class Relaunchable(Protocol):
    """A target whose call is a launch that may be made again without the program."""

    def launch_grids(self) -> Sequence[LaunchGrid]: ...

    def positional_arguments(self) -> int: ...

    def module_name(self) -> str:
        """The name under which its file can be imported, empty where there is none."""
        ...

    def recorded(self, arguments: Sequence[Argument], most: int) -> tuple[Argument, ...]:
        """The same with how each is compiled, the contents of integer tensors that have at most so
        many elements, and the ranges of larger ones; of tensors nothing where that is 0. Nothing of
        floating-point contents."""
        ...
