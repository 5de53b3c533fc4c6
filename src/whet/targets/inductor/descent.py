"""Kernels that Inductor writes, tuned by whet at their first launch: among Inductor's own configs,
and where Inductor would go down from these, a step at a time, built side by side."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from whet.core.config import Config
from whet.core.errors import ConfigFailure, TuningFailedError
from whet.core.mode import Mode
from whet.core.run import Result
from whet.core.status import Status
from whet.engine.fallback.calls import (
    BusyElsewhere,
    UndecidedCall,
    choice_without_tuning,
    in_store_or_memory,
)
from whet.engine.guard import HostLostError
from whet.engine.log import say_once
from whet.engine.settings import resolve_settings
from whet.engine.tuning import tune
from whet.store import Store
from whet.targets.inductor.kernel import Kernel, KernelTarget
from whet.targets.inductor.operation import LeftAlone
from whet.targets.inductor.target import stored_pick

if TYPE_CHECKING:
    from whet.targets.inductor.taking import Taken

# From where a descent started it has never gone further.
_MOST_STEPS = 8

# What is put in place of torch's own, and what of torch it needs.
_REPLACED = ("precompile", "autotune_to_one_config", "coordinate_descent_tuning")
_NEEDED = {
    "CachingAutotuner": (*_REPLACED, "_precompile_config", "clone_args"),
    "CoordescTuner": (
        "tunable_fields",
        "value_too_large",
        "value_too_small",
        "get_neighbour_values",
        "is_valid_config",
    ),
}


def kernels_unknown() -> str:
    """Why this torch's kernels cannot be taken; empty where they can."""
    try:
        from torch._inductor import codecache
        from torch._inductor.runtime import triton_heuristics
    except Exception as error:
        return f"torch._inductor.runtime cannot be imported ({type(error).__name__}: {error})"
    for name, members in _NEEDED.items():
        owner = getattr(triton_heuristics, name, None)
        for member in members:
            if not hasattr(owner, member):
                return f"{name}.{member} is not there"
    descent = triton_heuristics.CachingAutotuner.coordinate_descent_tuning
    if tuple(inspect.signature(descent).parameters)[:2] != ("self", "launcher"):
        return "CachingAutotuner.coordinate_descent_tuning has other parameters than in torch 2.13"
    if not hasattr(codecache, "_load_triton_kernel_from_source"):
        return "its workers load kernels otherwise"
    return ""


class Descents:
    """`CachingAutotuner` with whet behind it."""

    def __init__(self, taken: Taken) -> None:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        self._taken = taken
        self._kind: Any = CachingAutotuner
        self._before = {name: getattr(CachingAutotuner, name) for name in _REPLACED}
        self._builds: WeakKeyDictionary[Any, dict[Config, Future[Any]]] = WeakKeyDictionary()
        self._failed: WeakSet[Any] = WeakSet()
        precompile, among, descend = self._before.values()
        descents = self

        def precompiled(self: Any, warm_cache_only: bool = False, *rest: Any, **named: Any) -> Any:
            done = precompile(self, warm_cache_only, *rest, **named)
            if not warm_cache_only:
                descents.build_ahead(self)
            return done

        def autotune_to_one_config(self: Any, *args: Any, **kwargs: Any) -> Any:
            if descents.launcher(self, args, kwargs) is None:
                among(self, *args, **kwargs)

        def coordinate_descent_tuning(self: Any, launcher: Any, *args: Any, **kwargs: Any) -> Any:
            found = descents.launcher(self, args, kwargs)
            return descend(self, launcher, *args, **kwargs) if found is None else found

        CachingAutotuner.precompile = precompiled
        CachingAutotuner.autotune_to_one_config = autotune_to_one_config
        CachingAutotuner.coordinate_descent_tuning = coordinate_descent_tuning

    def give_back(self) -> None:
        for name, before in self._before.items():
            setattr(self._kind, name, before)

    def _kernel(self, autotuner: Any) -> Kernel | None:
        if autotuner in self._failed:
            return None
        try:
            return Kernel(autotuner, self._builds.setdefault(autotuner, {}))
        except LeftAlone as why:
            self._taken.left[autotuner.heuristic_type.name.lower()] = str(why)
            return None

    def build_ahead(self, autotuner: Any) -> None:
        """The first step of a descent, while Inductor goes on with other kernels."""
        if len(autotuner.launchers) != 1:  # where it starts is not known yet
            return
        kernel = self._kernel(autotuner)
        if kernel is None or not kernel.descends:
            return
        target = KernelTarget(kernel, [kernel.first()])
        if self._taken.mode() == "tune" and stored_pick(target) is None:
            kernel.build(kernel.near(kernel.first()))

    def launcher(self, autotuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The only one from now on; None leaves it to Inductor."""
        kernel = self._kernel(autotuner)
        if kernel is None:
            return None
        with self._taken.asking:  # a backward graph may be launched by a thread of autograd's
            mode = self._taken.mode()
            if mode == "off":
                return None
            began = time.monotonic()
            call = _FirstLaunch(kernel, args, kwargs, self)
            key = self._taken.note(call.target)
            try:
                pick = self._taken.decisions.known(mode, key, self._taken.picks)
                if pick is None or not kernel.offers(pick):
                    pick, _ = self._taken.decisions.decide(call, mode)
                return kernel.settle(pick if kernel.offers(pick) else kernel.first())
            except (TuningFailedError, ConfigFailure, HostLostError) as failure:
                self._failed.add(autotuner)
                say_once(f"{call.target.name} was not tuned: {failure}; Inductor decides")
                return None
            finally:
                self._taken.spent(call.target, time.monotonic() - began)

    def keep(self, key: str, pick: Config) -> None:
        self._taken.picks[key] = pick


class _FirstLaunch(UndecidedCall[Config]):
    """The first launch of a kernel, of which no earlier one in this process says anything."""

    def __init__(
        self, kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], descents: Descents
    ) -> None:
        self._kernel, self._args, self._kwargs, self._descents = kernel, args, kwargs, descents
        self.target = KernelTarget(kernel, [kernel.first()])
        self.key: str = self.target.workload().id

    def first(self) -> Config:
        return self._kernel.first()

    def look_up(self, mode: Mode) -> tuple[Config, bool]:
        unread = "the store cannot be read; using Inductor's own"
        choice = choice_without_tuning(self.target, mode, unread)
        return choice.config, choice.source == "exact"

    def is_captured(self) -> bool:
        import torch

        return bool(torch.cuda.is_current_stream_capturing())

    def while_capturing(self) -> Config:
        return stored_pick(self.target) or self.first()

    def tune(self) -> Config:
        pick = stored_pick(self.target)
        if pick is None:
            settings = resolve_settings().settings
            pick = in_store_or_memory(settings, self._descended).config
        self._descents.keep(self.key, pick)
        return pick

    def _descended(self, store: Store) -> Result:
        """Until nothing near the pick is left to try."""
        from whet.targets.triton.tuning import gpu_plan

        kernel = self._kernel
        call = self._copies()
        configs = list(kernel.known)
        if len(configs) == 1:
            configs += kernel.near(configs[0])
        for _ in range(_MOST_STEPS):
            kernel.build(configs)
            result = tune(
                KernelTarget(kernel, configs, call),
                store=store,
                plan=gpu_plan,
                progress=False,
                mode="tune",
                confirm=False,
            )
            if result.source == "waited":
                raise BusyElsewhere(result.config)
            near = [one for one in kernel.near(result.config) if one not in configs]
            if not near:
                break
            configs += near
        return result

    def _copies(self) -> Any:
        import torch

        try:
            return self._kernel.autotuner.clone_args(*self._args, **self._kwargs)
        except torch.OutOfMemoryError as full:
            text = "there is no memory for copies of what it changes"
            raise ConfigFailure(Status.RUN_ERROR, text) from full
