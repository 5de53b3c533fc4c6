"""What holds loaded configs and runs them, in a process of its own or (`LocalBench`) in this one.

What a kernel leaves running in its process would slow down whoever is measured there next.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

from whet.core.config import Config
from whet.core.errors import ConfigFailure, HostFailure, TargetError
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.timing import median
from whet.measure.bench.protocol import (
    Answer,
    Bench,
    DeviceRoom,
    FirstCall,
    Loaded,
    Loader,
    MayCompare,
    Recovering,
    Sampled,
    Visit,
    from_exception,
)
from whet.measure.timer import (
    Hopeless,
    Reading,
    Timer,
    Warm,
    as_timer,
    joined,
    run_once,
)
from whet.measure.timers import CpuTimer
from whet.workers.reaper import descendants

# How many configs stay loaded. A race samples those that are left in turns.
CAPACITY = 256

# What a measuring process tells of on its way through a call: a first call begins, and what comes
# after it.
FIRST_CALL, RUNNING = "first_call", "running"

# A config that compiles on its first call may compile some more on its second. Where the first took
# so many times the second, and the second was so long that it alone was the warm-up, it is warmed
# up once more.
LAZY_BY, LAZY_ABOVE_NS = 4.0, 20e6

# The readings of each config by id, or why it has none.
_Taken = dict[str, list[Reading] | ConfigFailure]


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
        self._timer = as_timer(timer)
        self._check_each = check_each
        self._capacity = capacity
        self._alone = alone
        self._slots: dict[str, Loaded] = {}
        self._warm_ups: dict[str, Warm] = {}

    def measure(self, visit: Visit, forgotten: Sequence[str] = ()) -> tuple[Answer, ...]:
        """`forgotten` are configs that were forgotten since the last visit, by id: two things in
        one round trip."""
        for config_id in forgotten:
            self.forget(config_id)
        if not visit.first:
            return self._further(visit)
        if self._timer.grouped and 1 < len(visit.built) <= self._capacity:
            return self._first_together(visit)
        return self._first_in_turn(visit)

    def _first(
        self, config: Config, artifact: Any, visit: Visit, hopeless: Hopeless | None
    ) -> Sampled:
        phases = _Phases()
        watched = nothing_left_running() if self._alone else contextlib.nullcontext()
        with watched, self._failing(config):
            loaded = self._checked(config, artifact, phases)
            warm = self._warm(config.id, loaded, phases)
            if _may_still_compile(phases["first_call"], warm):
                del self._warm_ups[config.id]
                warm = self._warm(config.id, loaded, phases)
            lost = hopeless is not None and hopeless.includes(warm.estimate_ns)
            samples = visit.samples_of(warm.estimate_ns)
            if lost:
                reading = self._as_it_warmed_up(warm)
            else:
                with phases.phase("measure"):
                    reading = self._sampled(loaded, samples, warm)
                phases.add("measure.kernel", reading.kernel_s)
            facts = FrozenMap(loaded.facts)
        return Sampled(reading, phases.frozen(), facts, lost)

    def _sampled(self, loaded: Loaded, samples: int, warm: Warm) -> Reading:
        """With the warm-up as the first sample, where it is one."""
        if not warm.is_sample:
            return self._timer.measure(loaded, samples, warm)
        first = replace(self._as_it_warmed_up(warm), quality="clean")
        if samples == 1:
            return first
        return joined([first, self._timer.measure(loaded, samples - 1, warm)])

    def _first_in_turn(self, visit: Visit) -> tuple[Answer, ...]:
        answers: list[Answer] = []
        hopeless = visit.hopeless
        for config, artifact in visit.built:
            try:
                one = self._first(config, artifact, visit, hopeless)
            except ConfigFailure as failure:
                answers.append(_as_answer(failure))
                if failure.spoils:
                    left = len(visit.built) - len(answers)
                    return (*answers, *[_not_run(failure)] * left)
                continue
            answers.append(one)
            if hopeless is not None:
                hopeless = hopeless.after(median(one.reading.samples))
        return tuple(answers)

    def _first_together(self, visit: Visit) -> tuple[Answer, ...]:
        """One launch of everybody first: these tell who is worth a sample."""
        phases = {config.id: _Phases() for config, _ in visit.built}
        answers: dict[str, Answer] = {}
        loaded: dict[str, Loaded] = {}
        spoilt: ConfigFailure | None = None
        for config, artifact in visit.built:
            try:
                with self._failing(config):
                    loaded[config.id] = self._checked(config, artifact, phases[config.id])
            except ConfigFailure as failure:
                answers[config.id] = _as_answer(failure)
                if failure.spoils:
                    spoilt = failure
                    break
        try:
            readings = {} if spoilt else self._group(loaded, visit, phases)
        except Exception as problem:
            failed = self._failure(problem)
            if failed.spoils:
                spoilt = failed
            else:
                # One of them failed in the middle of the others; one by one it will be seen who.
                again = visit.of(*[one for one in visit.built if one[0].id in loaded])
                answers.update(zip(loaded, self._first_in_turn(again), strict=True))
        else:
            for id, reading in readings.items():
                facts = FrozenMap(loaded[id].facts)
                lost = reading.quality == "contaminated"
                answers[id] = Sampled(reading, phases[id].frozen(), facts, lost)
        if spoilt is not None:
            return tuple(answers.get(id) or _not_run(spoilt) for id in phases)
        return tuple(answers[id] for id in phases)

    def _group(
        self, loaded: dict[str, Loaded], visit: Visit, phases: dict[str, _Phases]
    ) -> dict[str, Reading]:
        timer, samples, hopeless = self._timer, visit.samples, visit.hopeless
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
        taken = timer.turn([loaded[id] for id in wanted], [warms[id] for id in wanted])
        readings = {id: joined(taken[at : at + samples]) for at, id in _steps(wanted, samples)}
        _share(phases, readings, "measure", time.perf_counter() - began)
        return {**lost, **readings}

    def _checked(self, config: Config, artifact: Any, phases: _Phases) -> Loaded:
        self.forget(config.id)
        loaded = self._load(config, artifact, phases)
        if self._check_each:
            # What only runs once, with nothing to compare, is part of warming up.
            only_runs = isinstance(loaded, MayCompare) and not loaded.compares
            with phases.phase("warmup" if only_runs else "check"):
                verdict = loaded.check()
            if not verdict.ok:
                raise ConfigFailure(Status.WRONG_RESULT, verdict.message)
        return loaded

    def _further(self, visit: Visit) -> tuple[Answer, ...]:
        phases = {config.id: _Phases() for config, _ in visit.built}
        try:
            taken = self._turn(visit, phases) or self._one_by_one(visit, phases)
        except ConfigFailure as spoilt:
            return tuple(_not_run(spoilt) for _ in phases)
        return tuple(
            one if isinstance(one, ConfigFailure) else Sampled(joined(one), phases[id].frozen())
            for id, one in taken.items()
        )

    def _turn(self, visit: Visit, phases: Mapping[str, _Phases]) -> _Taken:
        """All at once where the timer can and everybody is at hand; else, and where anybody fails,
        nothing: one by one it will be seen who. Raises where the process can run nothing more."""
        at_hand = all(id in self._slots and id in self._warm_ups for id in phases)
        if not self._timer.grouped or len(visit.built) == 1 or not at_hand:
            return {}
        ids = [config.id for config, _ in visit.built for _ in range(visit.samples)]
        loaded, warms = [self._slots[id] for id in ids], [self._warm_ups[id] for id in ids]
        began = time.perf_counter()
        try:
            readings = self._timer.turn(loaded, warms)
        except Exception as problem:
            if (failure := self._failure(problem)).spoils:
                raise failure from problem
            return {}
        each = (time.perf_counter() - began) / len(ids)
        taken: dict[str, list[Reading]] = {id: [] for id in phases}
        for id, reading in zip(ids, readings, strict=True):
            taken[id].append(reading)
            phases[id].add("measure", each)
            phases[id].add("measure.kernel", reading.kernel_s)
        return {**taken}

    def _one_by_one(self, visit: Visit, phases: Mapping[str, _Phases]) -> _Taken:
        taken: _Taken = {}
        spoilt: ConfigFailure | None = None
        for config, artifact in visit.built:
            id = config.id
            before = taken.get(id, [])
            if isinstance(before, ConfigFailure):
                continue
            if spoilt is not None:
                taken[id] = _not_run(spoilt)
                continue
            try:
                one = self._sample(config, artifact, visit.samples, phases[id])
            except ConfigFailure as failure:
                taken[id] = _as_answer(failure)
                spoilt = failure if failure.spoils else None
            else:
                taken[id] = [*before, one]
        return taken

    def _as_it_warmed_up(self, warm: Warm) -> Reading:
        """A warm-up that is many times slower than the best needs no better measurement."""
        return Reading(
            samples=(warm.estimate_ns,),
            loops=warm.loops,
            timer=self._timer.name,
            l2=self._timer.l2,
            quality="contaminated",
        )

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
        self._timer.release()

    def _sample(self, config: Config, artifact: Any, samples: int, phases: _Phases) -> Reading:
        id = config.id
        with self._failing(config):
            loaded = self._slots.pop(id, None)
            if loaded is None:
                loaded = self._load(config, artifact, phases)
            self._slots[id] = loaded
            fresh = id not in self._warm_ups
            warm = self._warm(id, loaded, phases)
            if not fresh and warm.estimate_ns < self._timer.primed_below_ns:
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

    def _warm(self, config_id: str, loaded: Loaded, phases: _Phases) -> Warm:
        """What a warm-up taught holds for a config, however often it is loaded again."""
        if config_id not in self._warm_ups:
            with phases.phase("warmup"):
                warm = self._warm_ups[config_id] = self._timer.warm(loaded)
            phases.add("warmup.kernel", warm.kernel_s)
        return self._warm_ups[config_id]

    @contextlib.contextmanager
    def _failing(self, config: Config) -> Iterator[None]:
        """Whatever a kernel raises is that config's failure, and the end of what it had loaded."""
        try:
            yield
        except (ConfigFailure, HostFailure, TargetError):
            self.forget(config.id)
            raise
        except (Exception, SystemExit) as problem:
            self.forget(config.id)
            raise self._failure(problem) from problem

    def _failure(self, problem: BaseException) -> ConfigFailure:
        """What a kernel raised; a loader that can `recover` knows whether all is lost with it."""
        failure = from_exception(problem)
        loader = self._loader
        if failure.spoils or not isinstance(loader, Recovering) or loader.recover(problem):
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


def _as_answer(failure: ConfigFailure) -> ConfigFailure:
    """Without the frames it was raised in, which would hold on to what they had loaded."""
    failure.__traceback__ = failure.__cause__ = failure.__context__ = None
    return failure


def _not_run(spoilt: ConfigFailure) -> ConfigFailure:
    """For those whose turn came after a failure that spoilt the process."""
    text = f"not run, because another config had crashed the process: {spoilt.message}"
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


class LocalBench(Bench):
    """For kernels that can be trusted, or cannot leave this process.

    An exception is the config's failure. A crash is the caller's, and a kernel that never returns
    is never stopped: `limit_s` cannot be kept here and is ignored. With a `room`, a timer that
    needs device memory takes it now. `alone` is entered for each visit.
    """

    in_process = True

    def __init__(
        self,
        loader: Loader,
        timer: Timer,
        check_each: bool = True,
        capacity: int = CAPACITY,
        room: DeviceRoom | None = None,
        alone: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._executor = Executor(loader, timer, check_each, capacity)
        self._alone = alone
        if room is not None:
            as_timer(timer).prepare(room)

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        with self._alone():
            answers = self._executor.measure(visit)
        spoilt = [one for one in answers if isinstance(one, ConfigFailure) and one.spoils]
        if spoilt:
            # What others were told quotes what happened, so the shortest is the one it happened to.
            raise min(spoilt, key=lambda failure: len(failure.message))
        return answers

    def forget(self, config: Config) -> None:
        self._executor.forget(config.id)

    def end_call(self) -> None:
        pass

    def close(self) -> None:
        self._executor.close()


# The threads of OpenMP runtimes spin for up to 200 ms after a parallel region, and then sleep.
PATIENCE_S = 0.5
_FIRST_WAIT_S = 0.01

# Who uses less of a core than this disturbs nobody visibly.
_BUSY_SHARE = 0.1


def spinning_is_wanted() -> bool:
    """Whether OpenMP's threads were told never to rest, which is no config's fault."""
    policy = os.environ.get("OMP_WAIT_POLICY", "").strip().lower()
    return policy == "active" or os.environ.get("KMP_BLOCKTIME", "").strip().lower() == "infinite"


@contextmanager
def nothing_left_running() -> Iterator[None]:
    """For the first run of one config, in a process where nothing else is going on: threads and
    processes that began inside and do not come to rest after it are a failure that `spoils`."""
    before = _present()
    try:
        yield
    except ConfigFailure as failure:
        if failure.spoils or not _still_running(before):
            raise
        raise ConfigFailure(
            failure.status, failure.message, failure.limit, spoils=True
        ) from failure
    if left := _still_running(before):
        text = f"leaves {left} running after it returned; end or join them first"
        raise ConfigFailure(Status.RUN_ERROR, text, spoils=True)


@dataclass(frozen=True)
class _Usage:
    """`run_s` is exact, but of a process's first thread only; `used_s` is in steps of 10 ms."""

    runnable: bool
    used_s: float
    run_s: float

    def busy_since(self, earlier: _Usage, seconds: float) -> bool:
        """Runnable counts also without progress: on a full machine it waits for its turn."""
        spent = max(self.used_s - earlier.used_s, self.run_s - earlier.run_s)
        return self.runnable or spent >= _BUSY_SHARE * seconds


def _still_running(before: frozenset[str]) -> str:
    """`3 threads and 1 process`; empty where nobody is new, or all of them come to rest."""
    end = time.monotonic() + PATIENCE_S
    wait = _FIRST_WAIT_S
    new = _present() - before
    while new:
        earlier = _usage(new)
        time.sleep(wait)
        now = _usage(_present() - before)
        busy = [
            one
            for one, usage in now.items()
            if one not in earlier or usage.busy_since(earlier[one], wait)
        ]
        if not busy:
            break
        left = end - time.monotonic()
        if left <= 0:
            return _named(busy)
        wait = min(2 * wait, max(left, _FIRST_WAIT_S))
        new = frozenset(now)
    return ""


def _present() -> frozenset[str]:
    """The folders, in /proc, of this process's threads and of all processes below it."""
    try:
        threads = [f"/proc/self/task/{name}" for name in os.listdir("/proc/self/task")]
    except OSError:
        return frozenset()
    return frozenset([*threads, *(f"/proc/{pid}" for pid in _below())])


def _below() -> set[int]:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # there is none, as nearly always: no need to look at every process
        return set()
    return descendants(os.getpid())


def _usage(folders: Iterable[str]) -> dict[str, _Usage]:
    found: dict[str, _Usage] = {}
    for folder in folders:
        with suppress(OSError):  # it has ended
            found[folder] = _usage_of(folder)
    return found


def _usage_of(folder: str) -> _Usage:
    with open(f"{folder}/stat", encoding="utf-8", errors="replace") as file:
        text = file.read()
    fields = text[text.rindex(")") + 2 :].split()
    used_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    run_s = 0.0
    with suppress(OSError), open(f"{folder}/schedstat") as file:
        run_s = int(file.read().split()[0]) / 1e9
    return _Usage(fields[0] == "R", used_s, run_s)


def _named(busy: list[str]) -> str:
    threads = sum("/task/" in one for one in busy)
    counts = [(threads, "thread", "threads"), (len(busy) - threads, "process", "processes")]
    return " and ".join(f"{n} {one if n == 1 else many}" for n, one, many in counts if n)
