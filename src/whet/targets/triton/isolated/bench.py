"""A bench whose configs run in another process, on copies of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from whet.core.config import Config
from whet.core.errors import ConfigFailure, UsageError
from whet.core.frozen import FrozenMap
from whet.engine.log import say_once
from whet.measure.bench.protocol import Answer, Bench, Built, Sampled, Visit, from_exception
from whet.measure.bench.remote import NotSetUp, RemoteBench
from whet.targets.triton.call import Call
from whet.targets.triton.isolated.executor import Launch
from whet.targets.triton.isolated.ipc_arguments import CannotIsolate, NotShared, Packer
from whet.targets.triton.isolated.sending import (
    Elsewhere,
    NotPlain,
    bare_bench,
    bare_launch,
    ipc_call_of,
    is_plain,
    launch_of,
    prepare_launcher,
    timer_of,
)

PRELOAD = ("torch", "triton", "triton.runtime.autotuner", "whet.targets.triton.isolated.executor")

# How often a process that takes another's place may fail to get ready.
SET_UPS = 3

# A process that has been killed gives its memory back within a moment. That is waited for where the
# device has less than this left, or less than so many times the copies.
PLENTY_BYTES = 8 << 30
PLENTY_TIMES = 4


class Choices(Protocol):
    """What a bench needs to know of a target."""

    call: Call

    def triton(self, config: Config) -> Any: ...


class IsolatedBench(Bench):
    """Configs run in a spawned process, and in one that takes its place when that has died.

    Where this call cannot be measured there, which is said once with the reason, the bench is the
    one that `here` makes, in this process. `alone` is entered for each visit. With `elsewhere` the
    process is one for another device; what cannot be measured there raises `UsageError`.
    """

    def __init__(
        self,
        target: Choices,
        configs: Sequence[Any],
        here: Callable[[], Bench],
        alone: Callable[[], AbstractContextManager[object]],
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._alone = alone
        self._elsewhere = elsewhere
        self._target = target
        self._configs = configs
        self._here = here
        self._packer = Packer()
        self._launches: dict[str, Launch] = {}
        self._agree = self._through_host = False
        self._copied_bytes = 0
        self._reference: Launch | None = None
        self._proven = False
        # What another machine needs goes along with launches of the other kind only.
        self._bare: dict[str, Any] | None = None if elsewhere and elsewhere.remote else {}
        self._bench = self._opened()

    @property
    def in_process(self) -> bool:
        return self._bench.in_process

    @property
    def plain(self) -> bool:
        """Whether the other process does without torch and Triton."""
        return self._bare is not None and not self.in_process

    @property
    def set_up(self) -> FrozenMap[float]:
        """Where the time went in which the other process was made ready, in seconds."""
        return self._bench.set_up if isinstance(self._bench, RemoteBench) else FrozenMap()

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        with self._alone():
            fit, answers = self._launchable(visit.built)
            asked = visit.of(*fit)
            taken = self._measured(asked) if fit else ()
            answers.update(zip(asked.ids, taken, strict=True))
            if visit.first:
                self._trust(one for one in asked.ids if isinstance(answers[one], Sampled))
        return tuple(answers[id] for id in visit.ids)

    def forget(self, config: Config) -> None:
        self._bench.forget(config)

    def end_call(self) -> None:
        self._bench.end_call()

    def close(self) -> None:
        if isinstance(self._bench, RemoteBench):
            self._bench.close(wait=not _plenty(self._copied_bytes))
        else:
            self._bench.close()
        self._packer.close()

    def _opened(self, through_host: bool = False) -> Bench:
        call, elsewhere = self._target.call, self._elsewhere
        session = None if elsewhere is None else elsewhere.open_session
        try:
            ipc_call = ipc_call_of(call, self._configs, self._packer, through_host, elsewhere)
            self._agree, self._copied_bytes = ipc_call.agree, ipc_call.ipc_arguments.device_bytes
            if self._bare is not None and is_plain(call, self._configs, ipc_call):
                return bare_bench(ipc_call, call.tuner, session)
            self._bare = None
            return RemoteBench(
                ipc_call,
                timer_of(call.tuner),
                check_each=call.checks,
                preload=PRELOAD,
                open_session=session,
            )
        except (CannotIsolate, TypeError) as why:
            return self._opened_here(str(why))

    def _opened_here(self, why: str) -> Bench:
        name = self._target.call.tuner.base_fn.__name__
        if self._elsewhere is not None:
            raise UsageError(f"{name} cannot be measured on several devices: {why}")
        say_once(f"{name} is measured in this process, not isolated: {why}")
        return self._here()

    def _measured(self, visit: Visit) -> tuple[Answer, ...]:
        tries = SET_UPS
        while not self._bench.in_process:
            try:
                ready = visit.of(*[self._sent(one) for one in visit.built])
            except NotPlain:
                self._import_torch()
                continue
            except CannotIsolate as why:
                self._stay(str(why))
                continue
            try:
                answers = self._bench.measure(ready)
            except NotSetUp as problem:
                tries -= 1
                if self._proven and not tries:
                    raise
                if not self._proven:
                    self._set_up_otherwise(problem)
            else:
                self._proven = True
                return answers
        return self._bench.measure(visit)

    def _set_up_otherwise(self, problem: NotSetUp) -> None:
        """Where the first process could not be made ready: its memory is another's, or full."""
        if problem.kind == NotShared.__name__ and not self._through_host:
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

    def _launchable(self, built: Sequence[Built]) -> tuple[list[Built], dict[str, Answer]]:
        """Those that can be asked to measure, and why the others cannot."""
        fit: list[Built] = []
        failed: dict[str, Answer] = {}
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
        if known is not None and known is not launch:
            launch = replace(launch, reference=known)
        return config, launch.carried() if self._elsewhere and self._elsewhere.remote else launch

    def _bare_of(self, config: Config, launch: Launch) -> Any:
        assert self._bare is not None
        if not self._bare:
            prepare_launcher(self._target.call, self._target.triton(config))
        if config.id not in self._bare:
            self._bare[config.id] = bare_launch(launch)
        return self._bare[config.id]

    def _trust(self, config_ids: Iterable[str]) -> None:
        """Where configs have to agree: a process that takes another's place runs this one first,
        so that what is right stays the same."""
        if self._agree and self._reference is None and not self._bench.in_process:
            self._reference = next((self._launches[id] for id in config_ids), None)


def _plenty(copied: int) -> bool:
    if not copied:
        return True
    import torch

    free = int(torch.cuda.mem_get_info()[0])
    return free > max(PLENTY_BYTES, PLENTY_TIMES * copied)
