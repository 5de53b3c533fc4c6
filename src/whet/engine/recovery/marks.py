"""First launches in this process: marked in the store before, unmarked after; and what became of
those whose process ended in the middle."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from whet.core.config import Config
from whet.core.errors import ConfigFailure, StoreError
from whet.core.process import Mark, ProcessName
from whet.core.run import Outcome
from whet.core.status import Status
from whet.core.trial import Trial, new_id
from whet.core.workload import Device, Workload
from whet.engine.host import lives, this_process
from whet.engine.recovery.interrupt import DeviceLostError, Shield
from whet.store import MemoryStore, Store

# What this process has lost, by its pid (a fork has lost nothing) and the device.
_lost: dict[tuple[int, Device], DeviceLostError] = {}


class Spoilt(Exception):
    """One of `configs` failed in a way that ends all work on its device in this process."""

    def __init__(self, configs: tuple[Config, ...], failure: ConfigFailure) -> None:
        super().__init__(configs, failure)
        self.configs = configs
        self.failure = failure


class LaunchJournal:
    """Where a config can take this process down (`in_process`), the store knows beforehand which.

    A mark goes when the launch has ended in any way that leaves the process usable. Else it stays
    and says so: the next run is warned and, of several configs, finds out which of them it was.
    """

    def __init__(
        self,
        store: Store,
        workload: Workload,
        run_id: str,
        shield: Shield,
        in_process: Callable[[], bool],
    ) -> None:
        self._store = store
        self._workload = workload
        self._run_id = run_id
        self._shield = shield
        self._in_process = in_process
        self._process = this_process()
        self._lock = threading.Lock()
        self._running: Mark | None = None
        self._kept = False

    def refuse_if_lost(self) -> None:
        """Raises what this process was told when it lost the device, before anything is blamed
        for that."""
        known = _lost.get((os.getpid(), self._workload.device))
        if self._in_process() and known is not None:
            raise DeviceLostError(str(known))

    @contextmanager
    def around(self, configs: Sequence[Config], *, first: bool) -> Iterator[None]:
        """A visit to the bench; `first` where these configs have not run before."""
        if not self._in_process():
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

    def __init__(self, store: Store, workload: Workload, in_process: Callable[[], bool]) -> None:
        super().__init__(store, workload, new_id(), Shield(), in_process)
        self._known = store
        self._placed = False

    @contextmanager
    def around(self, configs: Sequence[Config], *, first: bool) -> Iterator[None]:
        if self._in_process() and not self._placed:
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
            self._store = MemoryStore()
            self._store.put_workload(self._workload)
        self._placed = True


def proven(store: Store, workload_id: str, config: Config) -> bool:
    """Whether it has run to its end before, with this source on this device."""
    trial = store.latest(workload_id, config.id)
    return trial is not None and trial.status.measured


# A process on another host cannot be asked whether it lives; one that looks at a config for so
# long does not.
ELSEWHERE_S = 86_400.0


@dataclass(frozen=True)
class CrashReport:
    """What is left of runs whose process died, or lost its device, in a first launch: `open` marks,
    and as `suspects` the configs (ids) in them of which nothing has been heard since. Where there
    are any marks, whatever else is tried may well end in the same way.

    A config that ran alone may be the culprit, or its process was killed by somebody else: where it
    can be measured in another process, that tells; where it cannot, it is blamed. Of several that
    ran together, one may be the culprit.
    """

    suspects: frozenset[str] = frozenset()
    open: tuple[Mark, ...] = ()

    def notes(self, *, isolated: bool) -> list[str]:
        if not self.open:
            return []
        runs = ", ".join(mark.run_id[:8] for mark in self.open)
        ended = f"the process of run {runs} died or lost its device during a first launch"
        if isolated:
            return [f"{ended}; measuring configs in a separate process"]
        if not self.suspects:
            return []
        what = "1 config" if len(self.suspects) == 1 else f"{len(self.suspects)} configs"
        return [f"{ended}; running {what} last and one at a time, to identify the cause"]


def examine(
    store: Store,
    workload_id: str,
    alive: Callable[[ProcessName], bool | None] = lives,
    now: Callable[[], float] = time.time,
) -> CrashReport:
    """Ends the runs that cannot do so themselves; safe to repeat."""
    found = noticed(store, workload_id, alive, now)
    for mark in found.open:
        _end_run(store, mark)
    return found


def noticed(
    store: Store,
    workload_id: str,
    alive: Callable[[ProcessName], bool | None] = lives,
    now: Callable[[], float] = time.time,
) -> CrashReport:
    """The same for who only reads."""
    over = tuple(mark for mark in store.marks(workload_id) if _is_over(mark, alive, now()))
    suspects = frozenset[str]().union(*(_unclear(store, mark) for mark in over))
    return CrashReport(suspects, over)


def blame(store: Store, found: CrashReport) -> tuple[CrashReport, list[Trial]]:
    """Writes down that those who ran alone have failed, and clears who ran together with them: a
    process ends once. What is left, and who was blamed."""
    alone = [mark for mark in found.open if len(mark.configs) == 1 and _unclear(store, mark)]
    culprits = [_blamed(mark, time.time()) for mark in alone]
    store.append(culprits)
    failed = {trial.config.id for trial in culprits}
    left = []
    for mark in found.open:
        if failed.isdisjoint(config.id for config in mark.configs):
            left.append(mark)
        else:
            store.unmark(mark.run_id)
    suspects = frozenset[str]().union(*(_unclear(store, mark) for mark in left))
    return CrashReport(suspects, tuple(left)), culprits


def close(store: Store, crash_report: CrashReport) -> None:
    """Removes the marks whose configs have all had their outcome since."""
    for mark in crash_report.open:
        if not _unclear(store, mark):
            store.unmark(mark.run_id)


def _is_over(mark: Mark, alive: Callable[[ProcessName], bool | None], now: float) -> bool:
    if mark.spoiled:
        return True
    known = alive(mark.process)
    return now - mark.at > ELSEWHERE_S if known is None else not known


def _unclear(store: Store, mark: Mark) -> set[str]:
    """Which of its configs have had no outcome since."""
    latest = {config.id: store.latest(mark.workload_id, config.id) for config in mark.configs}
    return {id for id, trial in latest.items() if trial is None or trial.created < mark.at}


def how_it_ended(mark: Mark) -> str:
    ended = "lost its device" if mark.spoiled else "died"
    return (
        f"the process that first ran it {ended} (run {mark.run_id[:8]}, pid {mark.process.pid} "
        f"on {mark.process.host})"
    )


def _blamed(mark: Mark, now: float) -> Trial:
    return Trial(
        workload_id=mark.workload_id,
        config=mark.configs[0],
        status=Status.RUN_ERROR,
        error=how_it_ended(mark),
        run_id=mark.run_id,
        created=now,
    )


def _end_run(store: Store, mark: Mark) -> None:
    run = store.run(mark.run_id)
    if run is None or run.outcome is not Outcome.RUNNING:
        return
    trials = [t for t in store.trials(mark.workload_id, all=True) if t.run_id == run.id]
    ended = replace(
        run,
        outcome=Outcome.INTERRUPTED,
        trials=len({trial.config.id for trial in trials}),
        wall_s=max(0.0, mark.at - run.started),
    )
    store.save_run(ended)
