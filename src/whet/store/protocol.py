"""`Store`: where trials and runs are kept, and what any store owes its callers.

Code that only looks things up asks for a `StoreReader`. `LeasingStore` is what a store of a fleet
has besides.

`whet.testing.store_kit` holds these obligations as tests.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias, runtime_checkable

from whet.core.config import Config
from whet.core.run import Run
from whet.core.trial import Trial
from whet.core.workload import Workload

if TYPE_CHECKING:
    from whet.core.miss import Miss
    from whet.core.process import Mark
    from whet.core.timeline import Timeline
    from whet.store.merging import MergeReport
    from whet.store.sweeping import GcReport


Models: TypeAlias = MutableMapping[str, str]

# One lock for all stores of a process, held across every fork. So a fork never happens in the midst
# of an operation: the child inherits stores that are idle, and a lock that is free.
LOCK = threading.RLock()

os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)


@dataclass(frozen=True)
class Pick:
    """A workload's best trial. `rivals` are the picks of other stores that were merged in and were
    never shown to be slower or faster than it on one occasion: the pick is contested."""

    trial: Trial
    rivals: tuple[Trial, ...] = ()


@dataclass(frozen=True)
class WorkloadSummary:
    """What a store knows about one workload.

    `trials` counts rows, superseded ones included; `configs` and `ok` count configs by their
    latest trial. `active` is the newest of the trials' `created` and the runs' ends, or, while
    there are none of either, the moment the workload was put into the store. `rivals` are those
    of `Pick`.
    """

    workload: Workload
    trials: int
    configs: int
    ok: int
    active: float
    best: Trial | None
    rivals: tuple[Trial, ...] = ()

    @property
    def best_config(self) -> Config | None:
        return None if self.best is None else self.best.config

    @property
    def median_ns(self) -> float | None:
        return None if self.best is None else self.best.median_ns


@dataclass(frozen=True)
class Match:
    """A workload the store knows, and in what (`fingerprint`, `key`, `device`, `toolchain`) it
    differs from the one asked for. A strict match differs in nothing."""

    kind: Literal["strict", "loose"]
    workload: Workload
    differs: tuple[str, ...] = ()


class StoreReader(Protocol):
    """What a store knows. Whatever goes wrong is a `StoreError` that names the store and the
    remedy. It may be used from any thread, and after a fork by the child as well as the parent."""

    @property
    def location(self) -> str:
        """Where it is, as `open_store` and `--store` take it."""
        ...

    @property
    def read_only(self) -> bool:
        """True where every writing method raises `StoreError` and changes nothing."""
        ...

    @property
    def lock_folder(self) -> Path | None:
        """A folder in which the processes of this host that use this store take turns; None, as
        without a definition, where nobody else uses it or they need not wait for each other."""
        return None

    @property
    def models(self) -> Models:
        """Texts by name that are worth keeping beside the results; an `OSError` where one cannot
        be written. Without a definition nothing is kept."""
        return {}

    @property
    def size_bytes(self) -> int | None:
        """What it takes on disk, for a person to read; None where it cannot tell."""
        return None

    @property
    def replaced(self) -> bool:
        """Whether another store has taken its place since it was opened, so that it should be
        opened anew."""
        return False

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        """The latest trial of each config, in the order in which the configs first appeared;
        with `all`, every trial in the order in which they were appended."""
        ...

    def latest(self, workload_id: str, config_id: str) -> Trial | None: ...

    def best(self, workload_id: str) -> Trial | None:
        """The config chosen by the newest finished run that chose one, if its latest trial is
        `ok`; else the `ok` trial with the lowest median, the earlier config where two are equal.

        Superseded trials do not count. Quick enough for a request: 2 ms with a million trials.
        Where runs of several stores have been merged it is the trial of `pick`.
        """
        found = self.pick(workload_id)
        return None if found is None else found.trial

    def pick(self, workload_id: str) -> Pick | None:
        """The best, and what it is contested with; as quick as `best`.

        Runs of two stores know nothing of each other until one chooses a config that knew both.
        Till then each store's pick is what it was there. Of two, one is dropped only if runs of
        both sides have measured both configs and agree on their order. Else this store's own pick
        stays, or without one the pick that was chosen first, and the others are its `rivals`;
        which configs are contested depends neither on who merged whom nor on the order of merging.
        """
        ...

    def runs(self, workload_id: str) -> list[Run]:
        """Newest first, by `started`; of two started at once, the one saved later."""
        ...

    def run(self, run_id: str) -> Run | None: ...

    def timeline(self, run_id: str) -> Timeline | None:
        """To the microsecond at least; None where none was saved."""
        ...

    def missed(self, kernel: str | None = None, *, tuned: bool = False) -> list[Miss]:
        """In the order in which they were met. With `tuned`, also those that have been tuned
        since, so that their calls can be made again."""
        ...

    def marks(self, workload_id: str) -> list[Mark]:
        """In the order in which their runs first made one."""
        ...

    def workloads(self, kernel: str | None = None) -> list[WorkloadSummary]:
        """The most recently active first."""
        ...

    def match(self, workload: Workload) -> Match | None:
        """The same workload if it is known, with or without trials; so ask before putting it.

        Else the nearest of the same kernel that has an `ok` trial: same device and fingerprint
        first, then same device, then same fingerprint, then the rest; among those the nearest
        key (numbers on a log scale, anything else equal or not), then the same toolchain.
        """
        ...

    def close(self) -> None:
        """Later calls raise `StoreError`; closing again does nothing."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StoreWriter(Protocol):
    """What changes a store: trials are appended and never edited, and a later trial of a config
    supersedes the earlier. Where the store is read-only, each of these raises `StoreError`."""

    def put_workload(self, workload: Workload) -> None:
        """Makes a workload known. A second time adds to its origin, where that says more, and
        changes nothing else."""
        ...

    def append(self, trials: Iterable[Trial]) -> int:
        """Stores the trials whose `id` is new, all or none, and returns how many those were.

        Once it has returned, kill -9 of this process loses none of them. A trial whose workload
        is not known raises `StoreError`. Each trial is from then on its config's latest.
        """
        ...

    def save_run(self, run: Run) -> None:
        """Inserts the run or replaces the one of the same `id`; makes its workload known.

        A finished run that chose a config takes its workload off the list of missed ones; what
        was recorded of the call stays.
        """
        ...

    def save_timeline(self, run_id: str, timeline: Timeline) -> None:
        """Keeps it with its run, in place of any other; a run that is not known raises
        `StoreError`. Saving the run again leaves it as it is, and it goes when the run goes."""
        ...

    def miss(self, miss: Miss) -> bool:
        """Writes down a key that had no result when it was needed, as durably as trials are;
        False where its workload is on the list already. Makes no workload known."""
        ...

    def forget_missed(self, workload_ids: Iterable[str]) -> int:
        """Takes workloads off the list, with what was recorded of them; how many there were."""
        ...

    def mark(self, mark: Mark) -> None:
        """Keeps it as durably as trials are, in place of any other mark of its run; a workload
        that is not known raises `StoreError`. It goes with its workload, and no merge takes it:
        it speaks of processes that use this store."""
        ...

    def unmark(self, run_id: str) -> None:
        """Removes the run's mark, if there is one."""
        ...

    def gc(
        self,
        *,
        older_than_s: float | None = None,
        superseded: bool = False,
        kernel: str | None = None,
        workloads: Collection[str] | None = None,
        max_bytes: int | None = None,
        dry_run: bool = False,
    ) -> GcReport:
        """Removes whole workloads that were not active for `older_than_s`, and superseded trials.

        A store that then holds more than `max_bytes` loses its superseded trials, and if that is
        not enough whole workloads, the least recently active first, until it fits. `kernel` and
        `workloads` (ids) confine all of this; alone, they remove what they name. With nothing
        asked for, nothing goes. Reading is not activity. What stays keeps its best. Keys that
        were missed as long ago, or of that kernel, go too and are not counted. The trials of
        configs that several stores have picked are not superseded before a run has decided.
        """
        ...

    def merge(self, other: StoreReader) -> MergeReport:
        """Adds what `other` has and this one lacks; a second time adds nothing.

        Of a config that both have tried, the trial with the later `created` is the latest one. A
        run that is still running here is replaced by the same run, ended; a timeline is taken where
        there is none; what is missed there is missed here, unless it is known by now. `pick` says
        what becomes of the pick; the report names every one that changes or is contested. Devices
        cannot mix: a workload names its own. A merge that is cut short leaves whole workloads and
        can be repeated.
        """
        ...


class Store(StoreReader, StoreWriter, Protocol):
    """Both. One that is `read_only` only has the methods of a writer."""


# What a class must have to be a store.
STORE_MEMBERS = tuple(name for name in dir(Store) if not name.startswith("_"))


@dataclass(frozen=True)
class LeaseHeld:
    """Somebody else has the lease: `process` is what they said of themselves, `since` is by the
    server's clock."""

    process: str
    since: float


class Lease(Protocol):
    """Renewed until it is released, or lost with the connection or the process."""

    @property
    def lost(self) -> bool: ...

    def release(self) -> None: ...


@runtime_checkable
class LeasingStore(Protocol):
    """A store of a fleet."""

    def lease(self, workload_id: str, process: str) -> Lease | LeaseHeld | None:
        """Without waiting; None where the server is away, so that nobody can be asked. After it has
        been had, reading the workload shows what others have found until then."""
        ...
