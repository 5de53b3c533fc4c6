"""`whet.autotune(…, idle=True)`: no call waits for a tuning, and later calls get better."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from whet.builds.job import Job
from whet.core.config import Config
from whet.core.errors import TuningFailedError
from whet.core.run import Choice
from whet.engine.fallback.background import NotNow, Refinement, TimeBudget
from whet.engine.fallback.calls import opened
from whet.engine.fallback.mode import current_mode
from whet.engine.log import logger
from whet.engine.ranks import group_board
from whet.engine.settings import Settings, resolve_settings
from whet.engine.target import BenchLimits
from whet.engine.turns import file_lock
from whet.measure.bench.executor import LocalBench
from whet.measure.bench.protocol import Bench
from whet.targets.triton import device
from whet.targets.triton.autotuner import Autotuner, UndecidedLaunch
from whet.targets.triton.call import Call, LoadedTriton, Touched, touched
from whet.targets.triton.compiler.capture import identified_request, jit_function
from whet.targets.triton.keys import workload_key
from whet.targets.triton.policy import settings_for
from whet.targets.triton.target import TritonTarget
from whet.targets.triton.tuning import announce

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

    def _meanwhile(self, call: UndecidedLaunch) -> Any:
        settings = settings_for(self)
        if not self.whet_idle or not self._refinable(settings):
            return None
        config, key = self._decisions.without_tuning(call, "cached", self.whet_lock), call.key
        if key not in self.cache and key not in self._met:
            self._met.add(key)
            try:
                if len(self._refining) >= MOST_AT_ONCE:
                    oldest = next(iter(self._refining))
                    self._refining.pop(oldest)[0].close()
                    self._met.discard(oldest)
                self._refining[key] = self._begin(config, call, settings)
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
        self, config: Any, call: UndecidedLaunch, settings: Settings
    ) -> tuple[Refinement, ShadowTarget]:
        key = workload_key(self.keys, call.passed, self.whet_buckets)
        target = ShadowTarget(PassingCall(self), call.configs, key, settings)
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


_NUMBERS = (bool, int, float, str, type(None))


class PassingCall(Call):
    """Has arguments only while a step is taken: nobody's tensors are kept alive or written to
    between steps. Unlike a tuning, which comes before a first call, it may meet tensors that have
    gathered something since, so whatever a launch or a hook may change is saved and put back."""

    def __init__(self, tuner: Any) -> None:
        self._touched: Touched | None = None
        self._current: dict[int, dict[str, Any]] = {}
        super().__init__(tuner, (), {})

    def bind(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        super().bind(args, keywords)
        self._current.clear()

    def current(self, config: Any) -> dict[str, Any]:
        found = self._current.get(id(config))
        if found is None:
            found = self._current[id(config)] = super().current(config)
        return found

    def protect(self, kernel: Any) -> None:
        """Raises where something cannot be saved: then nothing must be launched."""
        self._touched = self._touched or touched(kernel)
        self.save()

    def save(self) -> None:
        """Nothing before the first kernel is loaded, and nothing twice."""
        if self._touched is None or self._saved is not None:
            return
        saved: dict[str, Any] = {}
        for name in self._changed(self._touched):
            tensor = self.named.get(name)
            if isinstance(tensor, _NUMBERS):
                continue
            try:
                saved[name] = tensor.clone()
            except Exception as error:  # no tensor, or no memory
                raise TuningFailedError(
                    f"cannot save '{name}', which a launch may change: {error}"
                ) from error
        self._saved = saved

    def _changed(self, found: Touched) -> list[str]:
        tuner = self.tuner
        hooks = tuner.user_defined_pre_hook or tuner.user_defined_post_hook
        names = [*tuner.reset_to_zero, *tuner.restore_value, *found.updated, *self.also_read(found)]
        if hooks or any(config.pre_hook for config in tuner.configs):
            names += [name for name in tuner.arg_names if hasattr(self.named.get(name), "clone")]
        return list(dict.fromkeys(names))


class _LoadedShadow(LoadedTriton):
    """Runs with the arguments of now."""

    def __init__(self, call: Call, config: Any) -> None:
        super().__init__(call, config)
        self._current = {}

    def _keywords(self) -> dict[str, Any]:
        return self._call.current(self.config)


class ShadowTarget(TritonTarget):
    """A `TritonTarget` of a `PassingCall`."""

    def __init__(
        self,
        call: PassingCall,
        configs: Sequence[Any],
        key: Mapping[str, Any],
        settings: Settings,
    ) -> None:
        super().__init__(call, configs, key, settings)
        self._passing = call
        # The identity of what is built for a config; None once the kernel is in memory.
        self._built: dict[Config, str | None] = {}

    def job(self, config: Config) -> Job | None:
        job = super().job(config)
        self._built[config] = None if job is None else job.identity
        return job

    def load(self, config: Config, artifact: Any) -> LoadedTriton:
        loaded = _LoadedShadow(self.call, self.menu.by_id[config.id])
        self._built[config] = None
        return loaded

    def bench(self, limits: BenchLimits) -> Bench:
        """Without a lock: `bound` holds it."""
        return LocalBench(self, self._timer, check_each=False)

    @contextmanager
    def bound(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Iterator[None]:
        """Around a step, with the arguments of a call that is to be launched right after; raises
        `NotNow` where this call does not lend itself to it."""
        if device.capturing():
            raise NotNow
        with file_lock(self._timing_lock, 0.0) as had:
            if not had:
                raise NotNow
            self.call.bind(args, keywords)
            try:
                if not self._fits():
                    raise NotNow
                self._passing.save()
                try:
                    yield
                finally:
                    self.call.restore()
            finally:
                self.call.bind((), {})

    def _fits(self) -> bool:
        """Whether this call needs the very kernels that were built: another alignment, or another
        value of a heuristic, and Triton would compile them now."""
        call = self.call
        for config, identity in self._built.items():
            keywords = call.current(self.menu.by_id[config.id])
            found = identified_request(call.tuner.fn, call.args, keywords, self._limits)
            if found is not None and found[1] != identity:
                return False
        return True
