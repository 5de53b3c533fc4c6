"""What is around each visit to the device, and what ends a run early, with the best so far.

`Guard` is entered once a visit: the store knows beforehand which config may end this process, the
watchdog how long the visit may take, and the ledger learns where its time went. `Shield` has Ctrl-C
wait for the end of what has to be written.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from whet.core.errors import ConfigFailure, HostFailure, StoreError, WhetError
from whet.core.frozen import FrozenMap
from whet.core.process import Mark, this_process
from whet.core.trial import WALL_PHASES, WallPhase, new_id

if TYPE_CHECKING:
    from whet.builds.builder import Builder
    from whet.core.config import Config
    from whet.core.run import Result
    from whet.core.workload import Device, Workload
    from whet.measure.bench.protocol import Bench
    from whet.store import Store


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped tuning. `result` is the best so far, or None if nothing worked yet."""

    def __init__(self, result: Result | None) -> None:
        super().__init__("tuning was interrupted")
        self.result = result


class StoreLostError(StoreError):
    """The store can no longer be written, for example because the disk is full.

    `result` is the best so far, with every trial of the run, including those that were not stored;
    None if nothing worked yet. Results stored before are kept, and a later run continues from them.
    """

    def __init__(self, reason: str, result: Result | None) -> None:
        super().__init__(f"{reason}; stored results are kept, and the next run continues from them")
        self.result = result


class HostLostError(HostFailure):
    """The machine ran out of a resource that every config needs, such as disk space.

    `result` is the best so far, or None if nothing worked yet.
    """

    def __init__(self, reason: str, result: Result | None) -> None:
        super().__init__(reason)
        self.result = result


class DeviceLostError(WhetError):
    """A config made the device unusable in this process, such as by an illegal memory access.

    Results so far are stored. `result` is the best so far, or None if nothing worked yet.
    """

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


class Shield:
    """While open, Ctrl-C raises KeyboardInterrupt at once, except inside `held()`.

    There it is kept until the block ends, so that a finished trial is always written. Where Python
    would not raise KeyboardInterrupt itself (another thread, a handler of the user's own), this
    changes nothing.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._pending = False
        self._previous: Any = None

    def __enter__(self) -> Shield:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None

    @contextmanager
    def held(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._pending and self._depth == 0:
                self._pending = False
                raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self._pending = True
        else:
            raise KeyboardInterrupt


class WallLedger:
    """Gives every instant of one run to one phase.

    The engine's thread does one thing at a time, and what it does outranks what others do
    meanwhile: an instant spent measuring belongs to `measure` however many builds go on. Time that
    no phase claims is `idle`, which is the engine's own overhead.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._start = clock()
        self._spent: dict[WallPhase, float] = dict.fromkeys(WALL_PHASES, 0.0)

    @property
    def elapsed(self) -> float:
        return self._clock() - self._start

    @contextmanager
    def phase(self, phase: WallPhase) -> Iterator[None]:
        start = self._clock()
        try:
            yield
        finally:
            self._spent[phase] += self._clock() - start

    @contextmanager
    def measuring(self, parts: dict[str, float]) -> Iterator[None]:
        """Like `phase`, for a call that tells afterwards, in `parts`, what it was made of.

        What a call took beyond its parts (messages between processes, a worker's start) is load.
        """
        start = self._clock()
        try:
            yield
        finally:
            whole = self._clock() - start
            measure = parts.get("measure", 0.0) + parts.get("warmup", 0.0)
            check, first_call = parts.get("check", 0.0), parts.get("first_call", 0.0)
            known = measure + check + first_call
            scale = min(1.0, whole / known) if known else 1.0
            self._spent["measure"] += measure * scale
            self._spent["check"] += check * scale
            self._spent["first_call"] += first_call * scale
            self._spent["load"] += max(0.0, whole - known * scale)

    def close(self) -> FrozenMap[float]:
        """The ledger so far; its values sum to the run's length."""
        spent: dict[str, float] = {phase: self._spent[phase] for phase in WALL_PHASES}
        spent["idle"] += max(0.0, self.elapsed - sum(spent.values()))
        return FrozenMap(spent)


# What this process has lost, by its pid (a fork has lost nothing) and the device.
_lost: dict[tuple[int, Device], DeviceLostError] = {}


class Spoilt(Exception):
    """One of `configs` failed in a way that ends all work on its device in this process."""

    def __init__(self, configs: tuple[Config, ...], failure: ConfigFailure) -> None:
        super().__init__(configs, failure)
        self.configs = configs
        self.failure = failure


class LaunchJournal:
    """Where a config can take this process down, the store knows beforehand which.

    A mark goes when the launch has ended in any way that leaves the process usable. Else it stays
    and says so: the next run is warned and, of several configs, finds out which of them it was.
    """

    def __init__(
        self,
        store: Store,
        workload: Workload,
        run_id: str,
        shield: Shield,
        bench: Bench,
    ) -> None:
        self._store = store
        self._workload = workload
        self._run_id = run_id
        self._shield = shield
        self._bench = bench
        self._process = this_process()
        self._lock = threading.Lock()
        self._running: Mark | None = None
        self._kept = False

    def refuse_if_lost(self) -> None:
        """Raises what this process was told when it lost the device, before anything is blamed
        for that."""
        known = _lost.get((os.getpid(), self._workload.device))
        if self._bench.in_process and known is not None:
            raise DeviceLostError(str(known))

    @contextmanager
    def around(self, configs: Sequence[Config], *, first: bool) -> Iterator[None]:
        """A visit to the bench; `first` where these configs have not run before."""
        if not self._bench.in_process:
            yield
            return
        mark = Mark(self._workload.id, self._run_id, tuple(configs), self._process, time.time())
        stays = False
        try:
            self._running = mark
            if first:
                with self._shield.held():
                    self._store.mark(mark)
            yield
        except ConfigFailure as failure:
            if not failure.spoils:
                raise
            stays = True
            self._store.mark(replace(mark, spoiled=True))
            raise Spoilt(mark.configs, failure) from failure
        finally:
            with self._lock:
                self._running, kept, self._kept = None, self._kept, False
            if (first or kept) and not stays:
                with self._shield.held():
                    self._store.unmark(self._run_id)

    def keep(self) -> None:
        """What runs now may never end: it is marked, whether it runs for the first time or not.
        For another thread than that of `around`."""
        with self._lock:
            if self._running is not None:
                self._kept = True
                self._store.mark(self._running)

    def lost(self, spoilt: Spoilt) -> DeviceLostError:
        """What the caller is told; remembered for whatever this process tries next."""
        workload = self._workload
        names = " or ".join(f"[{config}]" for config in spoilt.configs)
        found = (
            "the config is now known to fail and will be skipped"
            if len(spoilt.configs) == 1
            else "the next run will find out which config it was"
        )
        error = DeviceLostError(
            f"{names} of '{workload.kernel}' failed on {workload.device.name} "
            f"({spoilt.failure.message}), and this process can no longer use the device; "
            f"restart it: {found}, or isolate=True (WHET_ISOLATE=1) measures in another process"
        )
        _lost[os.getpid(), workload.device] = error
        return error


class LaunchJournalOutside(LaunchJournal):
    """For launches that are part of no tuning: a pick that is verified, a rival between calls.

    What was measured for this very workload before can be, and is not marked; nor is anything
    where the store cannot be written. A failure that spoils is raised as `DeviceLostError`.
    """

    def __init__(self, store: Store, workload: Workload, bench: Bench) -> None:
        super().__init__(store, workload, new_id(), Shield(), bench)
        self._known = store
        self._placed = False

    @contextmanager
    def around(self, configs: Sequence[Config], *, first: bool) -> Iterator[None]:
        if self._bench.in_process and not self._placed:
            self._place()
        new = first and not all(proven(self._known, self._workload.id, one) for one in configs)
        try:
            with super().around(configs, first=new):
                yield
        except Spoilt as spoilt:
            raise self.lost(spoilt) from spoilt.failure

    def _place(self) -> None:
        """A store knows a workload before its marks; one that cannot be told is left alone."""
        try:
            self._store.put_workload(self._workload)
        except StoreError:
            from whet.store import MemoryStore

            self._store = MemoryStore()
            self._store.put_workload(self._workload)
        self._placed = True


def proven(store: Store, workload_id: str, config: Config) -> bool:
    """Whether it has run to its end before, with this source on this device."""
    trial = store.latest(workload_id, config.id)
    return trial is not None and trial.status.measured


# How often the run is looked at, at most and at least.
EVERY_S = (0.01, 5.0)

# So many configs are named; of more it is said how many there are.
NAMED = 4

# What begins the line about a run that gets nowhere.
NO_PROGRESS = "no progress for"


@dataclass(frozen=True)
class Doing:
    """What the run is busy with: `measuring`, `building`. `allowed_s` is what that may take by
    its own limits, `remedy` what a person can do, and `end` what can be done about it here."""

    what: str
    configs: Callable[[], Sequence[Config]]
    allowed_s: float
    remedy: str
    end: Callable[[], None] | None = None
    since: float = 0.0
    at: float = field(default_factory=time.time)


class Watchdog:
    """Told what is done and what has happened, it speaks once for each thing that does not end.

    Nothing is wrong while something happens at least every `patience_s` seconds on top of what the
    thing under way may take; None never minds. `heard` says when the last event of the run was.
    `gave_up` is set when a build had to be left to itself.
    """

    def __init__(
        self,
        patience_s: float | None,
        tell: Callable[[str], None],
        heard: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.gave_up = False
        self._patience_s = patience_s
        self._tell = tell
        self._heard = heard
        self._clock = clock
        self._sign = clock()
        self._doing: Doing | None = None
        self._spoken_of: Doing | None = None
        self._spoke_at = -1.0

    @contextmanager
    def doing(
        self,
        what: str,
        configs: Callable[[], Sequence[Config]],
        allowed_s: float,
        remedy: str,
        end: Callable[[], None] | None = None,
    ) -> Iterator[None]:
        before = self._doing
        self._sign = self._clock()
        self._doing = Doing(what, configs, allowed_s, remedy, end, since=self._sign)
        try:
            yield
        finally:
            self._doing = before
            self._sign = self._clock()

    def measuring(
        self, configs: Sequence[Config], allowed_s: float, bench: Bench, marking: LaunchJournal
    ) -> AbstractContextManager[None]:
        """A call of the bench. One in another process is ended by ending that; a kernel in this
        one cannot be, but the next run shall know whose it was."""
        if bench.in_process:
            remedy = (
                "a kernel in this process cannot be stopped; kill the process (pid "
                f"{os.getpid()}). The next run will know what was running; isolate=True "
                "measures in a separate process"
            )
            return self.doing("measuring", lambda: configs, allowed_s, remedy, marking.keep)
        remedy = "restarting the measuring process"
        return self.doing("measuring", lambda: configs, allowed_s, remedy, bench.end_call)

    def building(self, builder: Builder, allowed_s: float) -> AbstractContextManager[None]:
        remedy = "abandoning the unfinished builds and choosing among the others"

        def waited_for() -> list[Config]:
            return builder.building() or builder.waiting()

        return self.doing("building", waited_for, allowed_s, remedy, self._give_up)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Looks every now and then, from a thread of its own."""
        if self._patience_s is None:
            yield
            return
        over = threading.Event()
        least, most = EVERY_S
        pause = min(most, max(least, self._patience_s / 20))

        def look() -> None:
            while not over.wait(pause):
                # A watch that fails must not print over a tuning that works.
                with suppress(Exception):
                    self.check()

        thread = threading.Thread(target=look, name="whet watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _give_up(self) -> None:
        self.gave_up = True

    def check(self) -> None:
        """Speaks, and ends what can be ended, if nothing has happened for too long."""
        doing, now = self._doing, self._clock()
        sign = max(self._sign, self._heard())
        allowed = 0.0 if doing is None else doing.allowed_s
        if self._patience_s is None or now - sign <= allowed + self._patience_s:
            return
        if self._spoke_at == sign and self._spoken_of is doing:
            return
        self._spoken_of, self._spoke_at = doing, sign
        self._tell(_line(doing, now - sign))
        if doing is not None and doing.end is not None:
            doing.end()


def _line(doing: Doing | None, silent_s: float) -> str:
    if doing is None:
        return (
            f"{NO_PROGRESS} {silent_s:.0f} s: the search is still choosing, or a display or "
            "the store is blocking; Ctrl-C ends the run with the best so far"
        )
    since = time.strftime("%H:%M:%S", time.localtime(doing.at))
    return (
        f"{NO_PROGRESS} {silent_s:.0f} s: {doing.what} {_names(doing.configs())} since "
        f"{since}, with a limit of {doing.allowed_s:.3g} s; {doing.remedy}"
    )


def _names(configs: Sequence[Config]) -> str:
    named = ", ".join(f"[{config}]" for config in configs[:NAMED])
    more = len(configs) - NAMED
    return f"{named} and {more} more" if more > 0 else named


@dataclass(frozen=True)
class Guard:
    """What a run's steps have around their builds and visits."""

    ledger: WallLedger
    watch: Watchdog
    journal: LaunchJournal
    bench: Bench

    @contextmanager
    def visit(
        self, configs: Sequence[Config], allowed_s: float, *, first: bool
    ) -> Iterator[dict[str, float]]:
        """A call of the bench, marked where these configs are run for the `first` time here,
        watched for longer than `allowed_s`, and booked by the parts that the caller fills in."""
        parts: dict[str, float] = {}
        with (
            self.journal.around(configs, first=first),
            self.watch.measuring(configs, allowed_s, self.bench, self.journal),
            self.ledger.measuring(parts),
        ):
            yield parts

    @contextmanager
    def waiting(self, builder: Builder, allowed_s: float) -> Iterator[None]:
        """For builds."""
        with self.ledger.phase("waiting"), self.watch.building(builder, allowed_s):
            yield

    @contextmanager
    def searching(self) -> Iterator[None]:
        """For what chooses configs, which may call NumPy's linear algebra."""
        from whet.workers.process import no_forks  # what is stored needs no worker

        with self.ledger.phase("search"), no_forks():
            yield
