"""One program that is being warmed up: its calls, its kernels, and what is left of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.builds import SharedPool
from whet.core.budget import Budget
from whet.core.run import Result
from whet.engine.ahead import Ahead, Prospect, wanted
from whet.engine.settings import Settings
from whet.targets.triton.call import Call
from whet.targets.triton.keys import workload_key
from whet.targets.triton.stores import opened
from whet.targets.triton.target import TritonTarget
from whet.targets.triton.warming.active import SKIPPED
from whet.targets.triton.warming.skipping import SkipWatch


@dataclass(eq=False)
class MetKernel:
    """A kernel with a key that was not tuned when it was first called. `call` is the number of the
    program's call in which it was last met; `result` is there once it is tuned."""

    name: str
    key: str
    prospect: Prospect
    configs: Mapping[str, Any]
    call: int
    result: Result | None = None
    tried: bool = False
    owner: bool = True
    seconds: float = 0.0

    @property
    def settled(self) -> bool:
        """Nothing more will come of it, also where tuning it has failed."""
        return self.result is not None or self.tried


@dataclass
class Program:
    """What kernels ask while `whet.warmup` calls a step. `deadline` is by `time.monotonic`."""

    settings: Settings
    ahead: Ahead
    deadline: float | None = None
    said: Callable[[MetKernel], None] = lambda _: None
    calls: int = 0
    skips: SkipWatch | None = None
    kernels: dict[tuple[int, tuple[Any, ...]], MetKernel] = field(default_factory=dict)
    _now: threading.local = field(default_factory=threading.local)
    _alive: list[Any] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def pool(self) -> SharedPool:
        return self.ahead.pool

    @property
    def left(self) -> list[MetKernel]:
        """Met in the latest call, and not tuned yet."""
        return [one for one in self.kernels.values() if not one.settled and one.call == self.calls]

    @property
    def seconds_left(self) -> float | None:
        return None if self.deadline is None else self.deadline - time.monotonic()

    @property
    def out_of_time(self) -> bool:
        left = self.seconds_left
        return left is not None and left <= 0

    def budget(self, own: Budget | str | None) -> Budget | str | None:
        left = self.seconds_left
        if own is not None or left is None:
            return own
        return Budget(seconds=max(0.5, left))

    def met(
        self,
        tuner: Any,
        key: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        passed: Mapping[str, Any],
        configs: Sequence[Any],
    ) -> Any:
        with self._lock:
            one = self.kernels.get((id(tuner), key))
            if one is None:
                one = self._prepared(tuner, key, args, kwargs, passed, configs)
            one.call = self.calls
        if one.settled or (self.skips is None and self._is_due(one)):
            return self._tune(one)
        if not one.prospect.configs and tuner.whet_own_benchmark:
            return self._tune(one)  # the store has it
        tuner.best_config = configs[0]
        if self.skips is not None and self.skips.may_skip([*args, *kwargs.values()]):
            return SKIPPED
        ready = self.ahead.ready(one.prospect)
        if ready is None:  # nothing could be built, and the tuning says why
            return self._tune(one)
        return one.configs[ready.id]

    def _tune(self, one: MetKernel) -> None:
        one.tried = True
        self._now.kernel = one

    def tuned(self, result: Result) -> None:
        one: MetKernel = self._now.kernel
        one.result, one.seconds = result, result.run.wall_s
        if one.prospect.configs:
            self.said(one)

    def wait(self) -> None:
        """Until one of the kernels that are left can be tuned."""
        self.ahead.wait([one.prospect for one in self.left], self.seconds_left)

    def _is_due(self, one: MetKernel) -> bool:
        return not self.out_of_time and self.ahead.due(one.prospect)

    def _prepared(
        self,
        tuner: Any,
        key: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        passed: Mapping[str, Any],
        configs: Sequence[Any],
    ) -> MetKernel:
        named = workload_key(tuner.keys, passed, tuner.whet_buckets)
        target = TritonTarget(Call(tuner, args, kwargs), configs, named, self.settings)
        workload = target.workload()
        choices: tuple[Any, ...] = ()
        if tuner.whet_own_benchmark:
            with opened(self.settings) as store:
                choices = wanted(target, store, self.settings)
        prospect = Prospect(target.name, workload.id, choices)
        shown = ", ".join(f"{name}={value}" for name, value in named.items())
        by_id = {config.id: target.menu.by_id[config.id] for config in choices}
        one = MetKernel(target.name, shown, prospect, by_id, self.calls)
        self.kernels[id(tuner), key] = one
        self._alive.append(tuner)  # or another one could get its id
        jobs = {config: job for config in choices if (job := target.job(config)) is not None}
        self.ahead.begin(prospect, jobs)
        return one
