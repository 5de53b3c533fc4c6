"""A bench whose configs run in another process, on copies of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.measure import Bench, FirstLook, Hopeless, Reading, RemoteBench, Round
from whet.measure.bench.around import AroundBench
from whet.measure.bench.failures import from_exception
from whet.measure.bench.protocol import Built
from whet.measure.bench.remote import NotSetUp
from whet.targets.triton.call import Call
from whet.targets.triton.isolated.bare.plain import (
    NotPlain,
    bare_bench,
    bare_launch,
    is_plain,
    prepare_launcher,
)
from whet.targets.triton.isolated.driver import Refused
from whet.targets.triton.isolated.ipc_arguments import CannotIsolate, Packer
from whet.targets.triton.isolated.launch import Launch, launch_of
from whet.targets.triton.isolated.sending import ipc_call_of, timer_of
from whet.targets.triton.warn import say_once

PRELOAD = ("torch", "triton", "triton.runtime.autotuner", "whet.targets.triton.isolated.executor")

# How often a process that takes another's place may fail to get ready.
SET_UPS = 3

# A process that has been killed gives its memory back within a moment. That is waited for where the
# device has less than this left, or less than so many times the copies.
PLENTY_BYTES = 8 << 30
PLENTY_TIMES = 4

T = TypeVar("T")


class Choices(Protocol):
    """What a bench needs to know of a target."""

    call: Call

    def triton(self, config: Config) -> Any: ...


class IsolatedBench(AroundBench):
    """Configs run in a spawned process, and in one that takes its place when that has died.

    Where this call cannot be measured there, which is said once with the reason, the bench is the
    one that `here` makes, in this process.
    """

    def __init__(self, target: Choices, configs: Sequence[Any], here: Callable[[], Bench]) -> None:
        self._target = target
        self._configs = configs
        self._here = here
        self._packer = Packer()
        self._launches: dict[str, Launch] = {}
        self._agree = self._through_host = False
        self._copied_bytes = 0
        self._reference: Launch | None = None
        self._proven = False
        self._bare: dict[str, Any] | None = {}
        self._bench = self._opened()

    @property
    def plain(self) -> bool:
        """Whether the other process does without torch and Triton."""
        return self._bare is not None and not self.in_process

    @property
    def set_up(self) -> FrozenMap[float]:
        """Where the time went in which the other process was made ready, in seconds."""
        found: FrozenMap[float] = getattr(self._bench, "set_up", FrozenMap())
        return found

    def first(
        self,
        config: Config,
        artifact: Any,
        samples: int,
        *,
        limit_s: float | None = None,
        hopeless: Hopeless | None = None,
    ) -> FirstLook:
        def look(ready: Sequence[Built]) -> FirstLook:
            return self._bench.first(*ready[0], samples, limit_s=limit_s, hopeless=hopeless)

        taken = self._measured([(config, artifact)], look)
        self._trust(config)
        return taken

    def looks(
        self,
        built: Sequence[Built],
        samples: int,
        *,
        limit_s: float | None = None,
        hopeless: Hopeless | None = None,
    ) -> list[FirstLook | ConfigFailure]:
        fit, failed = self._launchable(built)

        def look(ready: Sequence[Built]) -> list[FirstLook | ConfigFailure]:
            return self._bench.looks(ready, samples, limit_s=limit_s, hopeless=hopeless)

        taken = self._measured(fit, look) if fit else []
        for (config, _), one in zip(fit, taken, strict=True):
            if isinstance(one, FirstLook):
                self._trust(config)
        found = {config.id: one for (config, _), one in zip(fit, taken, strict=True)}
        return [failed.get(config.id) or found[config.id] for config, _ in built]

    def sample(
        self, config: Config, artifact: Any, samples: int, *, limit_s: float | None = None
    ) -> tuple[Reading, FrozenMap[float]]:
        def sample(ready: Sequence[Built]) -> tuple[Reading, FrozenMap[float]]:
            return self._bench.sample(*ready[0], samples, limit_s=limit_s)

        return self._measured([(config, artifact)], sample)

    def round(self, built: Sequence[Built], *, limit_s: float | None = None) -> Round:
        fit, failed = self._launchable(built)
        if not fit:
            return Round(FrozenMap(), FrozenMap(failed))
        turn = self._measured(fit, lambda ready: self._bench.round(ready, limit_s=limit_s))
        return replace(turn, failures=FrozenMap({**turn.failures, **failed}))

    def close(self) -> None:
        if isinstance(self._bench, RemoteBench):
            self._bench.close(wait=not _plenty(self._copied_bytes))
        else:
            self._bench.close()
        self._packer.close()

    def _opened(self, through_host: bool = False) -> Bench:
        call = self._target.call
        try:
            ipc_call = ipc_call_of(call, self._configs, self._packer, through_host)
            self._agree, self._copied_bytes = ipc_call.agree, ipc_call.ipc_arguments.device_bytes
            if self._bare is not None and is_plain(call, self._configs, ipc_call):
                return bare_bench(ipc_call)
            self._bare = None
            return RemoteBench(
                ipc_call, timer_of(call.tuner), check_each=call.gate is not None, preload=PRELOAD
            )
        except (CannotIsolate, TypeError) as why:
            return self._opened_here(str(why))

    def _opened_here(self, why: str) -> Bench:
        name = self._target.call.tuner.base_fn.__name__
        say_once(f"{name} is measured in this process, not isolated: {why}")
        return self._here()

    def _measured(self, built: Sequence[Built], measure: Callable[[Sequence[Built]], T]) -> T:
        tries = SET_UPS
        while not self._bench.in_process:
            try:
                ready = [self._sent(one) for one in built]
            except NotPlain:
                self._import_torch()
                continue
            except CannotIsolate as why:
                self._stay(str(why))
                continue
            try:
                answer = measure(ready)
            except NotSetUp as problem:
                tries -= 1
                if self._proven and not tries:
                    raise
                if not self._proven:
                    self._set_up_otherwise(problem)
            except ConfigFailure:
                self._proven = True
                raise
            else:
                self._proven = True
                return answer
        return measure(built)

    def _set_up_otherwise(self, problem: NotSetUp) -> None:
        """Where the first process could not be made ready: its memory is another's, or full."""
        if problem.kind == Refused.__name__ and not self._through_host:
            self._through_host = True
            self._bench.close()
            self._bench = self._opened(through_host=True)
        elif self.plain:
            self._import_torch()
        else:
            self._stay(problem.message)

    def _import_torch(self) -> None:
        """Changes over to a process that has all that a call can need."""
        self._bench.close()
        self._packer.close()
        self._bare, self._proven = None, False
        self._bench = self._opened(self._through_host)

    def _stay(self, why: str) -> None:
        self._bench.close()
        self._bench = self._opened_here(why)

    def _launchable(self, built: Sequence[Built]) -> tuple[list[Built], dict[str, ConfigFailure]]:
        """Those that can be asked to measure, and why the others cannot."""
        fit: list[Built] = []
        failed: dict[str, ConfigFailure] = {}
        for one in built:
            try:
                if not self._bench.in_process:
                    self._sent(one)
            except CannotIsolate:
                fit.append(one)
            except ConfigFailure as failure:
                failed[one[0].id] = failure
            else:
                fit.append(one)
        return fit, failed

    def _sent(self, built: Built) -> Built:
        config, _ = built
        launch = self._launches.get(config.id)
        if launch is None:
            try:
                launch = launch_of(self._target.call, self._target.triton(config), self._packer)
            except CannotIsolate:
                raise
            except Exception as problem:
                raise from_exception(problem) from problem
            self._launches[config.id] = launch
        if self._bare is not None:
            return config, self._bare_of(config, launch)
        known = self._reference
        same = known is None or known is launch
        return config, launch if same else replace(launch, reference=known)

    def _bare_of(self, config: Config, launch: Launch) -> Any:
        assert self._bare is not None
        if not self._bare:
            prepare_launcher(self._target.call, self._target.triton(config))
        if config.id not in self._bare:
            self._bare[config.id] = bare_launch(launch)
        return self._bare[config.id]

    def _trust(self, config: Config) -> None:
        """Where configs have to agree: a process that takes another's place runs this one first,
        so that what is right stays the same."""
        if self._agree and self._reference is None and not self._bench.in_process:
            self._reference = self._launches[config.id]


def _plenty(copied: int) -> bool:
    if not copied:
        return True
    import torch

    free = int(torch.cuda.mem_get_info()[0])
    return free > max(PLENTY_BYTES, PLENTY_TIMES * copied)
