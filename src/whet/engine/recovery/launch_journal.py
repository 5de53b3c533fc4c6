"""First launches in this process: marked in the store before, unmarked after."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from whet.core.config import Config
from whet.core.errors import ConfigFailure, StoreError
from whet.core.process import Mark
from whet.core.trial import new_id
from whet.core.workload import Device, Workload
from whet.engine.host import this_process
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
