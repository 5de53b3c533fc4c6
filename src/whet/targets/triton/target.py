"""A call of a Triton kernel, as a target of the engine."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from whet.build import Job
from whet.core.config import Config, Value
from whet.core.frozen import FrozenMap
from whet.core.space import Space
from whet.core.timing import Method
from whet.core.workload import Workload
from whet.engine.target import BenchLimits
from whet.measure import Bench, LocalBench, Timer
from whet.targets.triton import device
from whet.targets.triton.call import Call, LoadedTriton
from whet.targets.triton.capture import identified_request, ready_to_fork
from whet.targets.triton.compile import compile_kernel
from whet.targets.triton.configs import Menu
from whet.targets.triton.locks import OneAtATime
from whet.targets.triton.portable import BinaryShelf
from whet.targets.triton.serving import active_shelves, packed_for
from whet.targets.triton.source import fingerprint


class TritonTarget:
    """Compiled in forks of this process, since a kernel may live in `__main__`, in a notebook or in
    a closure; timed in this process, where its arguments are."""

    shares_host = False
    build_mode = "fork"

    def __init__(
        self,
        call: Call,
        configs: Sequence[Any],
        key: Mapping[str, Any],
        make_timer: Callable[[], Timer],
        locks: Path,
    ) -> None:
        self.call = call
        self.menu = _menu(call.tuner, configs)
        self.name = str(call.tuner.base_fn.__name__)
        self._key = FrozenMap(key)
        self._make_timer = make_timer
        self._locks = locks
        self._index = device.current_index()
        self._limits = device.limits(self._index)

    @property
    def space(self) -> Space:
        return self.menu.space

    @cached_property
    def method(self) -> Method:
        return Method(self._timer.name, getattr(self._timer, "l2", "none"))

    @cached_property
    def _timer(self) -> Timer:
        return self._make_timer()

    @cached_property
    def _shelves(self) -> list[BinaryShelf]:
        return active_shelves()

    def workload(self) -> Workload:
        return self._workload

    @cached_property
    def _workload(self) -> Workload:
        import triton

        return Workload(
            kernel=self.name,
            fingerprint=fingerprint(self.call.tuner.fn),
            device=device.describe(self._index),
            key=self._key,
            toolchain=FrozenMap({"triton": triton.__version__}),
        )

    def reject(self, config: Config) -> str | None:
        return None

    def job(self, config: Config) -> Job | None:
        call, choice = self.call, self.menu.triton(config)
        found = identified_request(call.tuner.fn, call.args, call.current(choice), self._limits)
        if found is None:
            return None
        request, identity = found
        ready_to_fork(request.target)
        return Job(compile_kernel, (request, packed_for(request, self._shelves)), identity)

    def bench(self, limits: BenchLimits) -> Bench:
        lock = device.timing_lock_path(self._index, self._locks)
        bench = LocalBench(self, self._timer, check_each=self.call.gate is not None)
        return OneAtATime(bench, lock)

    def twin(self, config: Config, facts: Mapping[str, Value]) -> Hashable | None:
        """The same binary on the same grid with the same hook."""
        binary = facts.get("binary")
        if binary is None:
            return None
        choice = self.menu.triton(config)
        grid = self.call.keywords.get("grid")
        launched = tuple(grid(self.call.full(choice))) if callable(grid) else grid
        return (binary, launched, choice.num_warps, choice.num_ctas, choice.pre_hook)

    def features(self, config: Config) -> Mapping[str, float]:
        return {}

    def load(self, config: Config, artifact: Any) -> LoadedTriton:
        return LoadedTriton(self.call, self.menu.triton(config))


_Contents = list[tuple[Any, dict[str, Any], Any]]

_menus: WeakKeyDictionary[Any, tuple[_Contents, Menu]] = WeakKeyDictionary()


def _menu(tuner: Any, configs: Sequence[Any]) -> Menu:
    """The kernel's last one, where it still holds: shapes are tuned one after another, and people
    may have changed a config in between."""
    contents = [(config, config.all_kwargs(), config.pre_hook) for config in configs]
    known = _menus.get(tuner)
    if known is None or not _unchanged(known[0], contents):
        known = _menus[tuner] = contents, Menu(configs)
    return known[1]


def _unchanged(before: _Contents, now: _Contents) -> bool:
    def same(one: tuple[Any, dict[str, Any], Any], two: tuple[Any, dict[str, Any], Any]) -> bool:
        return one[0] is two[0] and one[2] is two[2] and one[1] == two[1]

    try:
        return len(before) == len(now) and all(map(same, before, now))
    except Exception:  # values that cannot be compared, such as arrays
        return False
