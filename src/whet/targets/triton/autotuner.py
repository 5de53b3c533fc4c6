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
from whet.engine.fallback.mode import asked, current_mode
from whet.engine.lockfile.in_force import lock_holds
from whet.targets.triton import device
from whet.targets.triton.call import Call
from whet.targets.triton.compiler.capture import jit_function, listen
from whet.targets.triton.dispatch import Cache, Dispatching
from whet.targets.triton.dynamo import COMPARABLE, Lookup, stored_rows
from whet.targets.triton.keys import (
    cache_key,
    needed_keywords,
    refuse_conflicts,
    refuse_incomplete,
    workload_key,
)
from whet.targets.triton.policy import AppliedPolicy, apply_policy, timing_of
from whet.targets.triton.target import TritonTarget
from whet.targets.triton.tuning import (
    BusyElsewhere,
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

# How often a kernel that another process is tuning looks whether that has ended.
LOOK_AGAIN_S = 1.0


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
        self.whet_events: Callable[[Event], None] | None = None
        self.whet_transfer: Any = None
        self.whet_result: Result | None = None
        self.whet_lost: StoreError | None = None
        self.cache = Cache()
        self.whet_waited: set[str] = set()
        self._stopgaps: dict[Any, Any] = {}
        self._busy: dict[Any, tuple[Any, float]] = {}
        self._read_rows = False
        self._without_context: Mode | None = None
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
            try:
                config, lasting = self._chosen(args, kwargs)
            finally:
                self.nargs = None
        if lasting:
            self._remember(config, args, kwargs)
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

    def _chosen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
        """The config for this call, known or found now; and whether that will hold, or is only a
        stopgap for a moment in which nothing can be tuned."""
        passed, full_key = self._keyed({**(self.nargs or {}), **kwargs})
        mode = self._mode_now()
        if mode != "off" and (known := self._known(mode, full_key)) is not None:
            return known, True
        pruned = self.prune_configs(kwargs)
        if len(pruned) > 1:
            refuse_conflicts(kwargs, pruned)
            refuse_incomplete(self.fn, passed, pruned)
        if len(pruned) == 1 or knobs.runtime.interpret:
            self.cache[full_key] = pruned[0]
            return pruned[0], True
        if mode != "tune":
            return self._untuned(mode, full_key, args, kwargs, passed, pruned), True
        if device.capturing():
            return while_capturing(self._target(args, kwargs, passed, pruned)), False
        config, until = self._busy.get(full_key, (None, 0.0))
        if time.monotonic() < until:
            return config, False
        program = active()
        if program is not None:
            config = program.met(UntunedCall(self, full_key, args, kwargs, passed, pruned))
            if config is not None:
                return config, False
        meanwhile = self._meanwhile(full_key, args, kwargs, passed, pruned)
        if meanwhile is not None:
            return meanwhile, True
        from_disk = True

        def benchmark() -> None:
            nonlocal from_disk
            from_disk = not self._benchmark(full_key, passed, args, kwargs, pruned)

        try:
            if self.cache_results:
                self.check_disk_cache(full_key, pruned, benchmark)
            else:
                benchmark()
        except BusyElsewhere as busy:
            self._busy[full_key] = (busy.config, time.monotonic() + LOOK_AGAIN_S)
            return busy.config, False
        announce(self, full_key, jit_function(self.fn), from_disk)
        self._tell_dynamo(passed, self.cache[full_key])
        self._drop_stopgaps(full_key)
        return self.cache[full_key], True

    def _keyed(self, named: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """The kernel's arguments among these, and the key of the cache."""
        passed = {name: value for name, value in named.items() if name in self.arg_names}
        key = cache_key(self.keys, passed, self.whet_buckets)
        index = None if knobs.runtime.interpret else device.current_index()
        # Device 0 keeps Triton's own key, which people look up; others must not share it.
        return passed, tuple(key) if not index else (*key, f"device:{index}")

    def _meanwhile(
        self,
        key: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        passed: dict[str, Any],
        configs: Sequence[Any],
    ) -> Any:
        """What is used while a refinement goes on, which then takes the place of a tuning."""
        return None

    def _mode_now(self) -> Mode:
        """Forgets what was dispatched under another `WHET_MODE`, as soon as that is noticed."""
        mode = current_mode(self._mode)
        if asked.get() is None and mode != self._without_context:
            self._without_context = mode
            if type(self.cache) is Cache:
                self.cache.tables.pop(None, None)
        return mode

    def _drop_stopgaps(self, key: tuple[Any, ...]) -> None:
        """Once a key is tuned, the modes that do not tune use that too."""
        stale = [known for known in self._stopgaps if known[1] == key]
        for known in stale:
            del self._stopgaps[known]
        if stale and type(self.cache) is Cache:
            self.cache.forget_plans()

    def _untuned(
        self,
        mode: Mode,
        key: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        passed: dict[str, Any],
        configs: Sequence[Any],
    ) -> Any:
        """What a mode that does not tune uses. A stored result is as good as a tuned one; any
        other choice is kept apart from `cache`, where a later mode would take it for one."""
        if mode == "off":
            return configs[0]
        if (mode, key) in self._stopgaps:
            return self._stopgaps[mode, key]
        locked = lock_holds(self.whet_lock, mode)
        if self.cache_results and not locked and on_disk(self, key, configs):
            exact = True
        else:
            target = self._target(args, kwargs, passed, configs)
            config, exact = untuned(target, mode)
            if exact:
                self.cache[key] = config
            if locked or not exact:
                self._stopgaps[mode, key] = config
        if exact:
            config = self.cache[key]
            announce(self, key, jit_function(self.fn), from_disk=True)
        self._tell_dynamo(passed, config, exact)
        return config

    def _known(self, mode: Mode, key: tuple[Any, ...]) -> Any:
        """Under a lock file, what was found in another way does not count."""
        if mode != "tune" and lock_holds(self.whet_lock, mode):
            return self._stopgaps.get((mode, key))
        return self.cache.get(key)

    def _target(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        passed: Mapping[str, Any],
        configs: Sequence[Any],
    ) -> TritonTarget:
        """For looking things up only."""
        key = workload_key(self.keys, passed, self.whet_buckets)
        call = Call(self, args, kwargs)
        return TritonTarget(call, configs, key, foreign=not self.whet_own_benchmark)

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
