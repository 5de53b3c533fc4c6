"""What stands between a subclass of Triton's `Autotuner` and whet's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from triton import knobs
from triton.runtime.jit import KernelInterface

from whet.engine.fallback.mode import current_mode
from whet.targets.triton import device
from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.tritons import stock_bench
from whet.targets.triton.warming.active import active

if TYPE_CHECKING:
    from whet.targets.triton.foreign import OneByOne


class Subclassed(Autotuner):
    """For a subclass that may call `_bench` itself, or has one of its own. `whet_ours` says that
    nobody asked for a benchmark of another kind."""

    whet_ours: bool
    whet_one_by_one: OneByOne | None
    whet_builds_in_bench = True

    def _bench(self, *args: Any, config: Any, **meta: Any) -> Any:
        """What a loop of the subclass's own gets in place of Triton's benchmark."""
        if knobs.runtime.interpret or device.capturing():
            return stock_bench(self, *args, config=config, **meta)
        if (program := active()) is not None:
            program.measures(self, [*args, *meta.values()])
        start = time.perf_counter()
        if self.whet_one_by_one is None:
            from whet.targets.triton.foreign import OneByOne

            self.whet_one_by_one = OneByOne(self.whet_ours)
        try:
            return self.whet_one_by_one.bench(self, args, config, meta)
        finally:
            self.whet_spent_s += time.perf_counter() - start

    def _benchmark(self, *args: Any) -> bool:
        before = self.whet_spent_s
        measured = super()._benchmark(*args)
        self.whet_spent_s = before + self.bench_time  # what `_bench` added is part of it
        return measured


class ThroughRun(Subclassed):
    """For a subclass with a `run` of its own, which every call has to reach.

    It may put configs into `cache`: these win, whatever the mode. It may also read there what was
    tuned, by Triton's own key, which says nothing of the device: where that is not the first, the
    config is there under both keys. `whet_put` has what whet put there, and `whet_lent` the keys
    that are not about the first device after all.
    """

    whet_put: dict[Any, Any]
    whet_lent: set[Any]

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        launch: Callable[..., Any] = KernelInterface.__getitem__(self, grid)
        return launch

    def _chosen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
        _, key = self._keyed({**(self.nargs or {}), **kwargs})
        if current_mode(self._mode) == "off" and self._is_theirs(key):
            return self.cache[key], True
        known = key in self.cache
        config, lasting = super()._chosen(args, kwargs)
        if not known and key in self.cache:
            self.whet_put[key] = self.cache[key]
            if _of_device(key) and key[:-1] not in self.cache:
                self.cache[key[:-1]] = self.whet_put[key[:-1]] = config
                self.whet_lent.add(key[:-1])
        return config, lasting

    def _keyed(self, named: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
        passed, key = super()._keyed(named)
        if _of_device(key):
            return passed, key[:-1] if self._is_theirs(key[:-1]) else key
        if key in self.whet_lent:
            self.whet_lent.discard(key)
            if not self._is_theirs(key):
                self.cache.pop(key, None)
        return passed, key

    def _is_theirs(self, key: tuple[Any, ...]) -> bool:
        return key in self.cache and self.whet_put.get(key) is not self.cache[key]


def _of_device(key: tuple[Any, ...]) -> bool:
    return bool(key) and isinstance(key[-1], str) and key[-1].startswith("device:")
