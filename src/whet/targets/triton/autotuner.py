"""Triton's `Autotuner`, with whet behind it."""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import triton
from triton import knobs
from triton.runtime import autotuner as stock

from whet.core.buckets import Buckets
from whet.core.errors import StoreError
from whet.core.mode import Mode, checked_mode
from whet.core.tested import check_tested
from whet.engine.fallback.calls import CallDecisions, UndecidedCall, stands_in
from whet.engine.fallback.mode import current_mode
from whet.engine.lockfile.in_force import lock_holds
from whet.targets.triton import device
from whet.targets.triton.call import Call
from whet.targets.triton.compiler.capture import jit_function, listen
from whet.targets.triton.dispatch import Cache, Dispatching, StandInLaunches
from whet.targets.triton.dynamo import COMPARABLE, Lookup, stored_rows
from whet.targets.triton.keys import (
    cache_key,
    needed_keywords,
    refuse_conflicts,
    refuse_incomplete,
    workload_key,
)
from whet.targets.triton.policy import AppliedPolicy, apply_policy, settings_for, timing_of
from whet.targets.triton.target import TritonTarget
from whet.targets.triton.tuning import (
    announce,
    by_own_benchmark,
    launch_another,
    on_disk,
    tuned,
    untuned,
    while_capturing,
)
from whet.targets.triton.warming.active import SKIPPED, UntunedCall, active

check_tested("triton", triton.__version__)

# What a stored answer takes is imported here, when a kernel is decorated, and not by the call that
# somebody waits for. What only tuning takes is imported when something is tuned.
if TYPE_CHECKING:
    from whet.core.event import Event
    from whet.core.run import Result
    from whet.core.timing import Method
    from whet.measure import Timer
    from whet.targets.triton.checks import Check


class Autotuner(Dispatching):
    """Triton's `Autotuner` with its attributes, hooks and printed lines; what is behind `run` is
    whet's: parallel builds, a race, and a store. Attributes beyond Triton's start with `whet_`."""

    whet_idle = False
    whet_lock: str | None = None
    whet_place = ""
    whet_spent_s = 0.0
    whet_policy_due = False

    def __init__(
        self,
        *args: Any,
        whet_search: Any = None,
        whet_budget: Any = None,
        whet_inputs: Callable[..., Any] | None = None,
        whet_check: Check | None = None,
        whet_mode: Mode | None = None,
        whet_buckets: Mapping[str, Any] | None = None,
        whet_isolate: bool | None = None,
        whet_claims: Sequence[str] = (),
        whet_wait_limit_s: float | None = None,
        **keywords: Any,
    ) -> None:
        self.cache: Any = None  # Triton's constructor assigns `configs` before it makes a cache
        self.whet_policy: AppliedPolicy | None = None
        self._lookup = Lookup()
        self._pruning = True  # Triton's constructor reads back what the author gave
        super().__init__(*args, **keywords)
        self._pruning = False
        self.whet_claims = tuple(whet_claims)
        self.whet_buckets = Buckets.of(whet_buckets, [*self.keys, *self.whet_claims])
        self._lookup.buckets = self.whet_buckets
        self.whet_mode = whet_mode
        self.whet_search = whet_search
        self.whet_budget = whet_budget
        self.whet_inputs = whet_inputs
        self.whet_check = whet_check
        self.whet_isolate = whet_isolate
        self.whet_wait_limit_s = whet_wait_limit_s
        self.whet_events: Callable[[Event], None] | None = None
        self.whet_transfer: Any = None
        self.whet_result: Result | None = None
        self.whet_lost: StoreError | None = None
        self.cache = Cache()
        self.whet_waited: set[str] = set()
        self._decisions: CallDecisions[Any] = CallDecisions()
        self._read_rows = False
        self._tuning = threading.RLock()
        # A wish for CUDA graphs alone is granted by our own timer, which flushes the L2 as well.
        own = (keywords.get(name) is None for name in ("do_bench", "warmup", "rep"))
        self.whet_own_benchmark = self._do_bench is None or (self.use_cuda_graph and all(own))
        self.whet_policy_due = True

    @property
    def configs(self) -> Any:
        """People assign these: what was chosen among the old ones is then no longer looked up.
        Nobody can use the kernel without a look at them, except where its config is known."""
        if self.whet_policy_due:
            apply_policy(self)
        return self._configs

    @configs.setter
    def configs(self, configs: Any) -> None:
        # A list of our own: Dynamo cannot trace two kernels that share one.
        self.whet_given = list(configs)
        policy = self.whet_policy
        self._configs = policy.configs(configs) if policy else self.whet_given
        if type(self.cache) is Cache:
            self.cache.forget_plans()

    @property
    def whet_mode(self) -> Mode | None:
        """The kernel's own mode, which outranks the context's and the settings'."""
        return self._mode

    @whet_mode.setter
    def whet_mode(self, mode: Mode | None) -> None:
        self._mode = None if mode is None else checked_mode(mode)
        if type(self.cache) is Cache:
            self.cache.forget_plans()

    @property
    def early_config_prune(self) -> Any:
        """The author's own while we prune; what Dynamo reads at other times may only look up."""
        if self._pruning:
            return self._own_prune
        if self.whet_policy_due:
            apply_policy(self)
        mode = current_mode(self._mode)
        if mode in ("cached", "require", "record") and not self._read_rows:
            self._read_rows = True
            self._lookup.remember(stored_rows(self, self._lookup, mode))
        return self._lookup.prune(mode)

    @early_config_prune.setter
    def early_config_prune(self, prune: Any) -> None:
        self._own_prune = self._lookup.own_prune = prune

    def _run_unknown(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(self.configs) < 2:
            self._remember(self.configs[0], args, kwargs)
            return self._launch(self.configs[0], args, kwargs)
        with self._tuning:
            self.nargs: dict[str, Any] | None = dict(zip(self.arg_names, args, strict=False))
            self._decisions.calls_left = None
            try:
                config, lasting = self._chosen(args, kwargs)
                left = self._decisions.calls_left
                _, key = (None, None) if left is None else self._keyed({**self.nargs, **kwargs})
            finally:
                self.nargs = None
        if lasting:
            stand_in = None if left is None else StandInLaunches(left, key)
            self._remember(config, args, kwargs, stand_in)
        if config is SKIPPED:
            return None
        try:
            return self._launch(config, args, kwargs)
        except stock.OutOfResources as refusal:
            return launch_another(self, config, refusal, args, kwargs)

    def _launch(self, config: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        self.best_config = config
        if not knobs.runtime.interpret:
            listen(jit_function(self.fn))  # what is packed need not be compiled
        if config.pre_hook is not None:
            self._call_hook(config, args, kwargs)
        return self.fn.run(*args, **kwargs, **self._launch_keywords(config))

    def _launch_keywords(self, config: Any) -> dict[str, Any]:
        """The same words with which the config was built and measured, so that Triton knows it."""
        if knobs.runtime.interpret or not self.whet_own_benchmark or len(self.configs) < 2:
            return dict(config.all_kwargs())
        return needed_keywords(config, device.default_options())

    def _pays(self, key: Any) -> None:
        self._decisions.pays(key)
        if type(self.cache) is Cache:
            self.cache.forget_plans()

    def _may_launch_directly(self) -> bool:
        return settings_for(self).direct

    def _chosen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
        """The config for this call, known or found now; and whether that will hold, or is only a
        stopgap for a moment in which nothing can be tuned."""
        passed, full_key = self._keyed({**(self.nargs or {}), **kwargs})
        mode = self._mode_now()
        if mode != "off":
            known = self._decisions.known(mode, full_key, self.cache, self.whet_lock)
            if known is not None:
                return known, True
        pruned = self.prune_configs(kwargs)
        if len(pruned) > 1:
            refuse_conflicts(kwargs, pruned)
            refuse_incomplete(self.fn, passed, pruned)
        if len(pruned) == 1 or knobs.runtime.interpret:
            self.cache[full_key] = pruned[0]
            return pruned[0], True
        call = UndecidedLaunch(self, full_key, args, kwargs, passed, pruned)
        return self._decisions.decide(call, mode, self.whet_lock)

    def _keyed(self, named: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """The kernel's arguments among these, and the key of the cache."""
        passed = {name: value for name, value in named.items() if name in self.arg_names}
        key = cache_key(self.keys, passed, self.whet_buckets)
        index = None if knobs.runtime.interpret else device.current_index()
        # Device 0 keeps Triton's own key, which people look up; others must not share it.
        return passed, tuple(key) if not index else (*key, f"device:{index}")

    def _meanwhile(self, call: UndecidedLaunch) -> Any:
        """What is used while a refinement goes on, which then takes the place of a tuning."""
        return None

    def _mode_now(self) -> Mode:
        return self._decisions.mode(self._mode, self._forget_without_context)

    def _forget_without_context(self) -> None:
        if type(self.cache) is Cache:
            self.cache.tables.pop(None, None)

    def _drop_stopgaps(self, key: tuple[Any, ...]) -> None:
        if self._decisions.tuned(key) and type(self.cache) is Cache:
            self.cache.forget_plans()

    def _tell_dynamo(self, passed: dict[str, Any], config: Any, exact: bool = True) -> None:
        """Only noted down: few programs compile with torch, and it asks before it looks."""
        values = {name: passed[name] for name in self.keys if name in passed}
        comparable = all(isinstance(value, COMPARABLE) for value in values.values())
        if config in self.configs and comparable:  # others would be kept alive for nothing
            dtypes = {name: v.dtype for name, v in passed.items() if hasattr(v, "dtype")}
            self._lookup.met.append((values, dtypes, self.configs.index(config), exact))

    def prune_configs(self, kwargs: dict[str, Any]) -> Any:
        with self._tuning:
            before, self._pruning = self._pruning, True
            try:
                return super().prune_configs(kwargs)
            finally:
                self._pruning = before

    def warmup(self, *args: Any, **kwargs: Any) -> Any:
        """As Triton's, which compiles every config; where nothing may be tuned, the one in use."""
        if len(self.configs) < 2 or current_mode(self._mode) == "tune":
            return super().warmup(*args, **kwargs)
        with self._tuning:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            try:
                config, _ = self._chosen(args, kwargs)
            finally:
                self.nargs = None
        return [self.fn.warmup(*args, **kwargs, **self._launch_keywords(config))]

    def _tuned(
        self, call: Call, key: Mapping[str, Any], configs: Sequence[Any]
    ) -> tuple[Any, dict[Any, list[float]], bool]:
        """Where `remeasure` puts something else in place of a tuning."""
        return tuned(self, call, key, configs)

    def _benchmark(
        self,
        key: tuple[Any, ...],
        passed: Mapping[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        configs: Sequence[Any],
    ) -> bool:
        """Fills the cache; False when nothing had to be measured for that."""
        start = time.perf_counter()
        call = Call(self, args, kwargs, self.whet_check)
        named = workload_key(self.keys, passed, self.whet_buckets)
        measured = True
        if self.whet_own_benchmark:
            best, timings, measured = self._tuned(call, named, configs)
        else:
            timings = by_own_benchmark(self, call, named, configs)
            best = builtins.min(timings, key=timings.get)  # type: ignore[arg-type]
        self.bench_time = time.perf_counter() - start
        self.whet_spent_s += self.bench_time
        self.cache[key] = best
        self.configs_timings = timings
        if measured:
            self.pre_hook({**call.full(best)}, reset_only=True)
        return measured

    def whet_timer(self) -> Timer:
        """What times the kernels; a subclass may choose another."""
        return device.timer(*timing_of(self))

    def whet_method(self) -> Method | None:
        """How `whet_timer` would measure; None where only the timer itself can tell."""
        if getattr(self.whet_timer, "__func__", None) is not Autotuner.whet_timer:
            return None
        return device.method(*timing_of(self))


class UndecidedLaunch(UntunedCall, UndecidedCall[Any]):
    """A launch whose config is to be known, found or tuned."""

    def first(self) -> Any:
        return self.configs[0]

    def look_up(self, mode: Mode) -> tuple[Any, bool]:
        tuner, key = self.tuner, self.key
        locked = lock_holds(tuner.whet_lock, mode)
        if tuner.cache_results and not locked and on_disk(tuner, key, self.configs):
            config, exact = None, True
        else:
            config, exact = untuned(self._target(), mode)
            if exact:
                tuner.cache[key] = config
        if exact:
            config = tuner.cache[key]
            announce(tuner, key, jit_function(tuner.fn), from_disk=True)
        tuner._tell_dynamo(self.passed, config, exact)
        return config, exact

    def _target(self) -> TritonTarget:
        """For looking things up only."""
        tuner = self.tuner
        key = workload_key(tuner.keys, self.passed, tuner.whet_buckets)
        call = Call(tuner, self.args, self.kwargs)
        return TritonTarget(call, self.configs, key, foreign=not tuner.whet_own_benchmark)

    def is_captured(self) -> bool:
        return device.capturing()

    def while_capturing(self) -> Any:
        return while_capturing(self._target())

    def in_warm_up(self) -> Any:
        program = active()
        return None if program is None else program.met(self)

    def in_background(self) -> Any:
        return self.tuner._meanwhile(self)

    def wait_limit_s(self) -> float | None:
        own = self.tuner.whet_wait_limit_s
        given = settings_for(self.tuner).wait_limit_s if own is None else own
        return None if active() is not None else given

    def stand_in(self) -> tuple[Any, int] | None:
        """Where bits must agree, or others measure, nothing is taken over unseen."""
        from whet.measure.bench.bits import BIT_CHECKS  # few have a limit

        if self.tuner.whet_check in BIT_CHECKS or not self.tuner.whet_own_benchmark:
            return None
        target = self._target()
        found = stands_in(target)
        return None if found is None else (target.triton(found.config), found.calls)

    def tune(self) -> Any:
        tuner, key = self.tuner, self.key
        from_disk = True

        def benchmark() -> None:
            nonlocal from_disk
            from_disk = not tuner._benchmark(key, self.passed, self.args, self.kwargs, self.configs)

        if tuner.cache_results:
            tuner.check_disk_cache(key, self.configs, benchmark)
        else:
            benchmark()
        announce(tuner, key, jit_function(tuner.fn), from_disk)
        tuner._tell_dynamo(self.passed, tuner.cache[key])
        tuner._drop_stopgaps(key)
        return tuner.cache[key]
