"""What stands between a subclass of Triton's `Autotuner` and whet's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from triton import knobs
from triton.runtime.jit import KernelInterface

from whet.engine.fallback.mode import asked, current_mode
from whet.targets.triton import device
from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.dispatch import shape_of
from whet.targets.triton.measuring.one_by_one import OneByOne
from whet.targets.triton.tritons import stock_bench


class Subclassed(Autotuner):
    """For a subclass that may call `_bench` itself, or has one of its own."""

    whet_one_by_one: OneByOne
    whet_builds_in_bench = True

    def _bench(self, *args: Any, config: Any, **meta: Any) -> Any:
        """What a loop of the subclass's own gets in place of Triton's benchmark."""
        if knobs.runtime.interpret or device.capturing():
            return stock_bench(self, *args, config=config, **meta)
        start = time.perf_counter()
        try:
            return self.whet_one_by_one.bench(self, args, config, meta)
        finally:
            self.whet_spent_s += time.perf_counter() - start


class ThroughRun(Subclassed):
    """For a subclass with a `run` of its own, which every call has to reach, and which may put
    configs into `cache`: these win, whatever the mode."""

    whet_put: dict[Any, Any]

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        launch: Callable[..., Any] = KernelInterface.__getitem__(self, grid)
        return launch

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """What `launch` is elsewhere: the quick way of a call, once the subclass lets it go on."""
        own = {name: kwargs[name] for name in kwargs if name not in ("grid", "warmup")}
        try:
            table = self.cache.tables[asked.get()]
            plan = table.plans[shape_of(args, own)] if own else table.quick[len(args)]
            config, keywords = plan.known[plan.key(args, own)]
        except (KeyError, AttributeError, TypeError):
            return super().run(*args, **kwargs)
        self.best_config = config
        return self.fn.run(*args, **kwargs, **keywords)

    def _chosen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
        named = {**(self.nargs or {}), **kwargs}
        if current_mode(self._mode) == "off":
            _, key = self._keyed(named)
            if self._is_theirs(key):
                return self.cache[key], True
        before = len(self.cache)
        config, lasting = super()._chosen(args, kwargs)
        if len(self.cache) != before:
            _, key = self._keyed(named)
            self.whet_put[key] = self.cache.get(key)
        return config, lasting

    def _keyed(self, named: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """The subclass knows Triton's key only, which says nothing of the device."""
        passed, key = super()._keyed(named)
        if key and str(key[-1]).startswith("device:") and self._is_theirs(key[:-1]):
            return passed, key[:-1]
        return passed, key

    def _is_theirs(self, key: tuple[Any, ...]) -> bool:
        return key in self.cache and self.whet_put.get(key) is not self.cache[key]
