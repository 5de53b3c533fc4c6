"""The process-side half of a bench: it holds what is loaded and runs it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.core.config import Config
from whet.core.errors import ConfigFailure, HostFailure
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.timing import median
from whet.measure.bench.failures import from_exception
from whet.measure.bench.leftovers import nothing_left_running, spinning_is_wanted
from whet.measure.bench.protocol import Built, FirstCall, FirstLook, Hopeless, Loaded, Loader, Round
from whet.measure.cpu import CpuTimer
from whet.measure.timer import Reading, Timer, Warm, joined, joined_by_id, run_once

# A kernel shorter than this runs once untimed after another has run, since that one's data and
# code are still in the caches; for a longer one it makes no difference.
PRIMED_BELOW_NS = 5e6


# How many configs stay loaded. A race samples those that are left in turns.
CAPACITY = 256

# What a station tells of on its way through a call: a first call begins, and what comes after it.
FIRST_CALL, RUNNING = "first_call", "running"

# A config that compiles on its first call may compile some more on its second. Where the first took
# so many times the second, and the second was so long that it alone was the warm-up, it is warmed
# up once more.
LAZY_BY, LAZY_ABOVE_NS = 4.0, 20e6


class _Phases:
    """Seconds by phase of one call, and within a phase those of the kernel on its device."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - began)

    def __getitem__(self, name: str) -> float:
        return self._seconds.get(name, 0.0)

    def add(self, name: str, seconds: float) -> None:
        if seconds:
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def frozen(self) -> FrozenMap[float]:
        return FrozenMap(self._seconds)


class Executor:
    """At most `capacity` configs are loaded at once; the least recently used is closed first.

    `alone`: nothing else goes on in this process, so a config that leaves something running in it
    has failed. `milestone` is called when a first call begins and when it is over.
    """

    milestone: Callable[[str], None] = staticmethod(lambda name: None)

    def __init__(
        self,
        loader: Loader,
        timer: Timer,
        check_each: bool = True,
        capacity: int = CAPACITY,
        alone: bool = False,
    ) -> None:
        self._loader = loader
        self._timer = timer
        self._check_each = check_each
        self._capacity = capacity
        self._alone = alone
        self._primed_below_ns: float = getattr(timer, "primed_below_ns", PRIMED_BELOW_NS)
        self._slots: dict[str, Loaded] = {}
        self._warm_ups: dict[str, Warm] = {}

    def first(
        self, config: Config, artifact: Any, samples: int, hopeless: Hopeless | None = None
    ) -> FirstLook:
        phases = _Phases()
        watched = nothing_left_running() if self._alone else contextlib.nullcontext()
        with watched, self._failing(config):
            loaded = self._checked(config, artifact, phases)
            warm = self._warm(config, loaded, phases)
            if _may_still_compile(phases["first_call"], warm):
                del self._warm_ups[config.id]
                warm = self._warm(config, loaded, phases)
            lost = hopeless is not None and hopeless.includes(warm.estimate_ns)
            if lost:
                reading = self._as_it_warmed_up(warm)
            else:
                with phases.phase("measure"):
                    reading = self._timer.measure(loaded, samples, warm)
                phases.add("measure.kernel", reading.kernel_s)
            facts = FrozenMap(loaded.facts)
        return FirstLook(reading, facts, phases.frozen(), lost)

    def looks(
        self, built: Sequence[Built], samples: int, hopeless: Hopeless | None = None
    ) -> list[FirstLook | ConfigFailure]:
        if hasattr(self._timer, "turn") and 1 < len(built) <= self._capacity:
            return self._looks_together(built, samples, hopeless)
        return self._looks_in_turn(built, samples, hopeless)

    def _looks_in_turn(
        self, built: Sequence[Built], samples: int, hopeless: Hopeless | None
    ) -> list[FirstLook | ConfigFailure]:
        taken: list[FirstLook | ConfigFailure] = []
        for config, artifact in built:
            try:
                look = self.first(config, artifact, samples, hopeless)
            except ConfigFailure as failure:
                taken.append(failure)
                if failure.spoils:
                    return taken + [_not_run(failure)] * (len(built) - len(taken))
                continue
            taken.append(look)
            if hopeless is not None:
                hopeless = hopeless.after(median(look.reading.samples))
        return taken

    def _looks_together(
        self, built: Sequence[Built], samples: int, hopeless: Hopeless | None
    ) -> list[FirstLook | ConfigFailure]:
        """One launch of everybody first: these tell who is worth a sample."""
        phases = {config.id: _Phases() for config, _ in built}
        failures: dict[str, ConfigFailure] = {}
        loaded: dict[str, Loaded] = {}
        for config, artifact in built:
            try:
                with self._failing(config):
                    loaded[config.id] = self._checked(config, artifact, phases[config.id])
            except ConfigFailure as failure:
                failures[config.id] = failure
                if failure.spoils:
                    return [failures.get(c.id) or _not_run(failure) for c, _ in built]
        try:
            readings = self._group(loaded, samples, hopeless, phases)
        except Exception as problem:
            if (failed := self._failure(problem)).spoils:
                return [failures.get(config.id) or _not_run(failed) for config, _ in built]
            # One of them failed in the middle of the others; one by one it will be seen who.
            left = self._looks_in_turn([b for b in built if b[0].id in loaded], samples, hopeless)
            again = dict(zip(loaded, left, strict=True))
            return [failures.get(config.id) or again[config.id] for config, _ in built]
        return [
            failures.get(config.id)
            or FirstLook(
                readings[config.id],
                FrozenMap(loaded[config.id].facts),
                phases[config.id].frozen(),
                hopeless=readings[config.id].quality == "contaminated",
            )
            for config, _ in built
        ]

    def _group(
        self,
        loaded: dict[str, Loaded],
        samples: int,
        hopeless: Hopeless | None,
        phases: dict[str, _Phases],
    ) -> dict[str, Reading]:
        timer: Any = self._timer
        began = time.perf_counter()
        warms: dict[str, Warm] = dict(zip(loaded, timer.warm_all([*loaded.values()]), strict=True))
        _share(phases, warms, "warmup", time.perf_counter() - began)
        self._warm_ups.update(warms)
        if hopeless is not None:
            for warm in warms.values():
                hopeless = hopeless.after(warm.estimate_ns)
        lost = {
            id: self._as_it_warmed_up(warm)
            for id, warm in warms.items()
            if hopeless is not None and hopeless.includes(warm.estimate_ns)
        }
        wanted = [id for id in loaded if id not in lost for _ in range(samples)]
        began = time.perf_counter()
        taken: list[Reading] = timer.turn(
            [loaded[id] for id in wanted], [warms[id] for id in wanted]
        )
        readings = {id: joined(taken[at : at + samples]) for at, id in _steps(wanted, samples)}
        _share(phases, readings, "measure", time.perf_counter() - began)
        return {**lost, **readings}

    def _checked(self, config: Config, artifact: Any, phases: _Phases) -> Loaded:
        self.forget(config.id)
        loaded = self._load(config, artifact, phases)
        if self._check_each:
            # What only runs once, with nothing to compare, is part of warming up.
            with phases.phase("check" if getattr(loaded, "compares", True) else "warmup"):
                verdict = loaded.check()
            if not verdict.ok:
                raise ConfigFailure(Status.WRONG_RESULT, verdict.message)
        return loaded

    def sample(
        self, config: Config, artifact: Any, samples: int
    ) -> tuple[Reading, FrozenMap[float]]:
        phases = _Phases()
        reading = self._sample(config, artifact, samples, phases)
        return reading, phases.frozen()

    def round(self, built: Sequence[Built]) -> Round:
        phases = _Phases()
        failures: dict[str, ConfigFailure] = {}
        spoilt: ConfigFailure | None = None
        taken: list[tuple[str, Reading]] = []
        try:
            taken = self._turn(built, phases)
        except ConfigFailure as failure:
            spoilt = failure
        for config, artifact in built if not taken else ():
            if config.id in failures:
                continue
            if spoilt is not None:
                failures[config.id] = _not_run(spoilt)
                continue
            try:
                taken.append((config.id, self._sample(config, artifact, 1, phases)))
            except ConfigFailure as failure:
                failures[config.id] = failure
                spoilt = failure if failure.spoils else None
        readings = joined_by_id((id, one) for id, one in taken if id not in failures)
        return Round(FrozenMap(readings), FrozenMap(failures), phases.frozen())

    def _turn(self, built: Sequence[Built], phases: _Phases) -> list[tuple[str, Reading]]:
        """All at once where the timer can and everybody is at hand; else, and where anybody fails,
        nothing: one by one it will be seen who. Raises where the process can run nothing more."""
        turn = getattr(self._timer, "turn", None)
        ids = [config.id for config, _ in built]
        at_hand = all(id in self._slots and id in self._warm_ups for id in ids)
        if turn is None or not at_hand:
            return []
        try:
            with phases.phase("measure"):
                taken: list[Reading] = turn(
                    [self._slots[id] for id in ids], [self._warm_ups[id] for id in ids]
                )
        except Exception as problem:
            if (failure := self._failure(problem)).spoils:
                raise failure from problem
            return []
        phases.add("measure.kernel", sum(reading.kernel_s for reading in taken))
        return list(zip(ids, taken, strict=True))

    def _as_it_warmed_up(self, warm: Warm) -> Reading:
        """A warm-up that is many times slower than the best needs no better measurement."""
        return Reading(
            samples=(warm.estimate_ns,),
            loops=warm.loops,
            timer=self._timer.name,
            l2=getattr(self._timer, "l2", "none"),
            quality="contaminated",
        )

    def after_forgetting(self, config_ids: Sequence[str], method: str, args: Sequence[Any]) -> Any:
        """Two things in one round trip."""
        for config_id in config_ids:
            self.forget(config_id)
        return getattr(self, method)(*args)

    def forget(self, config_id: str) -> None:
        self._unload(config_id)
        self._warm_ups.pop(config_id, None)

    def _unload(self, config_id: str) -> None:
        loaded = self._slots.pop(config_id, None)
        if loaded is not None:
            # What a kernel does when it is closed no longer matters to anybody.
            with contextlib.suppress(Exception):
                loaded.close()

    def close(self) -> None:
        for config_id in tuple(self._slots):
            self.forget(config_id)
        release = getattr(self._timer, "release", None)
        if release is not None:
            release()

    def _sample(self, config: Config, artifact: Any, samples: int, phases: _Phases) -> Reading:
        with self._failing(config):
            loaded = self._slots.pop(config.id, None)
            if loaded is None:
                loaded = self._load(config, artifact, phases)
            self._slots[config.id] = loaded
            fresh = config.id not in self._warm_ups
            warm = self._warm(config, loaded, phases)
            if not fresh and warm.estimate_ns < self._primed_below_ns:
                with phases.phase("warmup"):
                    run_once(loaded)
            with phases.phase("measure"):
                reading = self._timer.measure(loaded, samples, warm)
            phases.add("measure.kernel", reading.kernel_s)
            return reading

    def _load(self, config: Config, artifact: Any, phases: _Phases) -> Loaded:
        while len(self._slots) >= self._capacity:
            self._unload(next(iter(self._slots)))
        with phases.phase("load"):
            loaded = self._loader.load(config, artifact)
        self._slots[config.id] = loaded
        if isinstance(loaded, FirstCall):
            self.milestone(FIRST_CALL)
            with phases.phase("first_call"):
                loaded.first_call()
            self.milestone(RUNNING)
        return loaded

    def _warm(self, config: Config, loaded: Loaded, phases: _Phases) -> Warm:
        """What a warm-up taught holds for a config, however often it is loaded again."""
        if config.id not in self._warm_ups:
            with phases.phase("warmup"):
                warm = self._warm_ups[config.id] = self._timer.warm(loaded)
            phases.add("warmup.kernel", warm.kernel_s)
        return self._warm_ups[config.id]

    @contextlib.contextmanager
    def _failing(self, config: Config) -> Iterator[None]:
        """Whatever a kernel raises is that config's failure, and the end of what it had loaded."""
        try:
            yield
        except (ConfigFailure, HostFailure):
            self.forget(config.id)
            raise
        except (Exception, SystemExit) as problem:
            self.forget(config.id)
            raise self._failure(problem) from problem

    def _failure(self, problem: BaseException) -> ConfigFailure:
        """What a kernel raised; a loader that can `recover` knows whether all is lost with it."""
        failure = from_exception(problem)
        recover = getattr(self._loader, "recover", None)
        if failure.spoils or recover is None or recover(problem):
            return failure
        return ConfigFailure(failure.status, failure.message, failure.limit, spoils=True)


@dataclass(frozen=True)
class MakeExecutor:
    """Sent to the worker, or inherited by it, and called there."""

    make_loader: Callable[[], Loader]
    make_timer: Callable[[], Timer]
    check_each: bool
    capacity: int

    def __call__(self) -> Executor:
        loader, timer = self.make_loader(), self.make_timer()
        # A GPU's libraries have threads of their own, which do not slow its kernels down.
        alone = isinstance(timer, CpuTimer) and not spinning_is_wanted()
        return Executor(loader, timer, self.check_each, self.capacity, alone)


def _may_still_compile(first_call_s: float, warm: Warm) -> bool:
    slow = warm.estimate_ns > LAZY_ABOVE_NS
    return slow and first_call_s * 1e9 > LAZY_BY * warm.estimate_ns


def _not_run(spoilt: ConfigFailure) -> ConfigFailure:
    """For those whose turn came after a failure that spoilt the process."""
    text = f"not run, since another config had spoilt the process: {spoilt.message}"
    return ConfigFailure(spoilt.status, text, spoilt.limit, spoils=True)


def _steps(ids: Sequence[str], size: int) -> list[tuple[int, str]]:
    return [(at, ids[at]) for at in range(0, len(ids), size)]


def _share(
    phases: Mapping[str, _Phases],
    taken: Mapping[str, Warm] | Mapping[str, Reading],
    phase: str,
    seconds: float,
) -> None:
    """Of what all took together, each gets the same, and its own kernel's time within that."""
    for id, one in taken.items():
        phases[id].add(phase, seconds / len(taken))
        phases[id].add(f"{phase}.kernel", one.kernel_s)
