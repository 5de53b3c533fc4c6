"""`whet.autotune(…, idle=True)`: no call waits for a tuning, and later calls get better."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from whet.core.run import Choice
from whet.engine.fallback.background import Refinement
from whet.engine.fallback.mode import current_mode
from whet.engine.fallback.time_budget import TimeBudget
from whet.engine.log import logger
from whet.engine.ranks import group_board
from whet.engine.settings import Settings, resolve_settings
from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.compiler.capture import jit_function
from whet.targets.triton.fallback.shadow import PassingCall, ShadowTarget
from whet.targets.triton.keys import workload_key
from whet.targets.triton.policy import settings_for
from whet.targets.triton.stores import opened
from whet.targets.triton.tritons import announce

# What finding the refinement of a call may take.
LOOK_UP_S = 1e-4

# A look at a call of another key is followed by up to 2^n looks that are left out, at random, so
# that keys that take turns do not always hide the one that is wanted.
MOST_DOUBLINGS = 8

# Refinements of one kernel; the one that was called the longest ago makes room.
MOST_AT_ONCE = 8

_shared: TimeBudget | None = None


def shared_allowance() -> TimeBudget:
    """All kernels of a process have one together."""
    global _shared
    if _shared is None:
        _shared = TimeBudget(resolve_settings().settings.idle_share)
    return _shared


class IdleAutotuner(Autotuner):
    """In mode `tune`, a key that is not known takes what mode `cached` would, and a `Refinement`
    goes on between its next calls; a step is taken before a launch, so that what the call leaves
    behind is its own. Other modes are as ever.

    Where a refinement could not keep to that, the first call tunes as ever: with a `check`, a
    benchmark of the user's own, timing by CUDA graphs, isolation, or ranks that must agree.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.whet_idle = True
        self._refining: dict[tuple[Any, ...], tuple[Refinement, ShadowTarget]] = {}
        self._met: set[tuple[Any, ...]] = set()
        self._allowance = TimeBudget(0.0)
        self._misses = 0
        self._left_out = 0

    def _meanwhile(
        self,
        key: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        passed: dict[str, Any],
        configs: Sequence[Any],
    ) -> Any:
        settings = settings_for(self)
        if not self.whet_idle or not self._refinable(settings):
            return None
        config = self._untuned("cached", key, args, kwargs, passed, configs)
        if key not in self.cache and key not in self._met:
            self._met.add(key)
            try:
                if len(self._refining) >= MOST_AT_ONCE:
                    oldest = next(iter(self._refining))
                    self._refining.pop(oldest)[0].close()
                    self._met.discard(oldest)
                self._refining[key] = self._begin(config, passed, configs, settings)
                self.__class__ = _Refining
            except Exception as error:
                logger.warning(
                    f"'{self.base_fn.__name__}' will not be tuned between calls: {error}"
                )
        return config

    def _refinable(self, settings: Settings) -> bool:
        graphs = bool(self.use_cuda_graph) or settings.cuda_graph
        own = self.whet_own_benchmark and self.whet_check is None
        isolated = settings.isolate if self.whet_isolate is None else self.whet_isolate
        return own and not graphs and not isolated and group_board() is None

    def _begin(
        self, config: Any, passed: Mapping[str, Any], configs: Sequence[Any], settings: Settings
    ) -> tuple[Refinement, ShadowTarget]:
        key = workload_key(self.keys, passed, self.whet_buckets)
        target = ShadowTarget(PassingCall(self), configs, key, settings)
        choice = Choice(target.menu.plain(config), "first", 0.0, "in use")
        stack = ExitStack()
        store = stack.enter_context(opened(settings))
        allowance = self._allowance = shared_allowance()
        refinement = Refinement(target, store, choice, allowance=allowance, settings=settings)
        refinement.at_end(stack.close)
        return refinement, target

    def _between_calls(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        allowance = self._allowance
        with allowance.spending() as alone:
            if self._left_out > 0:
                self._left_out -= 1
                return
            if not alone or not self._tuning.acquire(blocking=False):
                return
            try:
                if self._affordable:
                    self._step(args, keywords)
            except Exception as error:
                self._refining.clear()
                logger.warning(
                    f"tuning '{self.base_fn.__name__}' between calls has stopped: {error}"
                )
            finally:
                if not self._refining:
                    self.__class__ = IdleAutotuner
                self._tuning.release()

    @property
    def _affordable(self) -> bool:
        """Whether any refinement could go on; looking for that of a call would cost too."""
        allowance = self._allowance
        least = min((one.expected_s for one, _ in self._refining.values()), default=0.0)
        return allowance.covers(least + LOOK_UP_S) or allowance.too_little

    def _step(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if not self.whet_idle or current_mode(self._mode) != "tune":
            return
        named = {**dict(zip(self.arg_names, args, strict=False)), **keywords}
        passed, key = self._keyed(named)
        found = self._refining.get(key)
        if found is None:
            self._misses = min(MOST_DOUBLINGS, self._misses + 1)
            self._left_out = random.randrange(2**self._misses)
            return
        self._misses = 0
        refinement, target = self._refining[key] = self._refining.pop(key)  # now the latest
        if key in self.cache:  # somebody else has put it there
            refinement.close()
        refinement.turn(target.bound(args, keywords))
        if refinement.done:
            del self._refining[key]
            if refinement.choice.source == "exact":
                self._decided(key, passed, refinement, target)

    def _decided(
        self,
        key: tuple[Any, ...],
        passed: dict[str, Any],
        refinement: Refinement,
        target: ShadowTarget,
    ) -> None:
        best = target.triton(refinement.choice.config)
        self.bench_time = refinement.spent_s
        self.whet_spent_s += self.bench_time
        self.cache[key] = best
        self._drop_stopgaps(key)
        announce(self, key, jit_function(self.fn), from_disk=False)
        self._tell_dynamo(passed, best)


_launch, _run = Autotuner.__getitem__, Autotuner.run


class _Refining(IdleAutotuner):
    """What an `IdleAutotuner` is while a refinement goes on: a class of its own, so that a launch
    costs nothing more before and after. It may end in the middle of a call, so that there is
    nothing in it that others call, and no `super()`."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        launch = _launch(self, grid)
        allowance = self._allowance
        allowance.unseen += 1
        if allowance.unseen < allowance.look_after:
            return launch

        def launch_after_a_step(*args: Any, **kwargs: Any) -> Any:
            self._between_calls(args, {**kwargs, "grid": grid})
            return launch(*args, **kwargs)

        return launch_after_a_step

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Where a call comes by way of `triton.heuristics`, or its config has a hook."""
        if not kwargs.get("warmup") and self._allowance.counts_call():
            self._between_calls(args, kwargs)
        return _run(self, *args, **kwargs)
