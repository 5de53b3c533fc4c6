"""What `gc` was asked to remove, checked; what that comes to in a given store; and what went."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.core.errors import UsageError
from whet.core.frozen import FrozenMap
from whet.store.beside import removed_code, removed_columns, removed_journeys
from whet.store.connecting import pragma

if TYPE_CHECKING:
    from whet.store.sql import Session


@dataclass(frozen=True)
class GcReport:
    """What went, or would go in a dry run, where the bytes are an estimate.

    `bytes_left` is what the store then holds; `kernels` counts the workloads by kernel."""

    trials: int = 0
    runs: int = 0
    workloads: int = 0
    bytes_freed: int = 0
    bytes_left: int = 0
    kernels: FrozenMap[int] = field(default_factory=FrozenMap)
    dry_run: bool = False


@dataclass(frozen=True)
class Weighed:
    """One workload on the scales. `superseded_bytes` are part of `bytes`."""

    n: int
    id: str
    kernel: str
    active: float
    bytes: float = 0.0
    superseded_bytes: float = 0.0
    promoted: bool = False


@dataclass(frozen=True)
class Going:
    """`workloads` go whole, and of `confined` those trials that are `superseded`."""

    workloads: tuple[Weighed, ...]
    confined: tuple[Weighed, ...]
    superseded: bool


@dataclass(frozen=True)
class Sweep:
    """`workloads`: remove those that were last active before `cutoff`, where None sets no bound.
    `superseded`: remove such trials. `kernel` and `ids` confine either, and what `max_bytes`
    may cost."""

    workloads: bool
    superseded: bool
    kernel: str | None
    ids: frozenset[str] | None
    cutoff: float | None
    max_bytes: int | None

    @classmethod
    def of(
        cls,
        older_than_s: float | None,
        superseded: bool,
        kernel: str | None,
        ids: Collection[str] | None,
        max_bytes: int | None,
    ) -> Sweep:
        if older_than_s is not None and not older_than_s >= 0:
            raise UsageError(f"an age of {older_than_s} s is not valid; give 0 seconds or more")
        if max_bytes is not None and max_bytes < 0:
            raise UsageError(f"a size of {max_bytes} bytes is not valid; give 0 or more")
        confined = kernel is not None or ids is not None
        return cls(
            workloads=older_than_s is not None
            or (confined and not superseded and max_bytes is None),
            superseded=superseded,
            kernel=kernel,
            ids=None if ids is None else frozenset(ids),
            cutoff=None if older_than_s is None else time.time() - older_than_s,
            max_bytes=max_bytes,
        )

    def choose(self, known: Sequence[Weighed], size: float) -> Going:
        """What goes of a store that holds `known` in `size` bytes."""
        confined = tuple(one for one in known if self._concerns(one))
        whole = [one for one in confined if self.workloads and self._old(one)]
        if self.max_bytes is None:
            return Going(tuple(whole), confined, self.superseded)
        gone = {one.id for one in whole}
        kept = sorted((one for one in confined if one.id not in gone), key=lambda one: one.active)
        left = size - sum(one.bytes for one in whole)
        superseded = self.superseded or left > self.max_bytes
        if superseded:
            left -= sum(one.superseded_bytes for one in kept)
        for one in kept:
            if left <= self.max_bytes:
                break
            whole.append(one)
            left -= one.bytes - one.superseded_bytes
        return Going(tuple(whole), confined, superseded)

    def _concerns(self, one: Weighed) -> bool:
        return self.kernel in (None, one.kernel) and (self.ids is None or one.id in self.ids)

    def _old(self, one: Weighed) -> bool:
        return self.cutoff is None or one.active < self.cutoff


@dataclass(frozen=True)
class SweepPlan:
    """`report` is what carrying it out comes to; its bytes are an estimate. `changed` are the ids
    of workloads that lose trials."""

    asked: Mapping[str, Any]
    report: GcReport
    changed: frozenset[str] = frozenset()

    @property
    def anything(self) -> bool:
        return bool(self.report.trials or self.report.runs or self.report.workloads)

    def carry_out(self, session: Session) -> None:
        for name in ("DELETE_TRIALS", "DELETE_WORKLOADS", "DELETE_MISSED"):
            session.change(name, **self.asked)

    def remove_beside(self, session: Session, file: Path) -> int:
        """Once it is carried out: columns and intermediate code, kept beside the file, of trials
        that are gone, and reports of workloads that are. How many bytes that were."""
        try:
            there = {id for _, id, *_ in session.rows("SWEPT")}
            freed = removed_columns(file, there - self.changed) + removed_journeys(file, there)
            return freed + removed_code(file, lambda: {name for (name,) in session.rows("CODE")})
        except (sqlite3.Error, UnicodeDecodeError):  # of a damaged row: then they stay
            return 0


def weighed(session: Session) -> list[Weighed]:
    """Every workload, by what its rows hold."""
    weights: Counter[int] = Counter()
    superseded: dict[int, int] = {}
    for n, of_all, of_superseded in session.rows("WEIGH_TRIALS"):
        weights[n] += of_all
        superseded[n] = of_superseded
    for n, rest in session.rows("WEIGH_REST"):
        weights[n] += rest
    return [
        replace(one, bytes=weights[one.n], superseded_bytes=superseded.get(one.n, 0))
        for one in _unweighed(session)
    ]


def _unweighed(session: Session) -> list[Weighed]:
    return [
        Weighed(n, id, kernel, active, promoted=bool(promoted))
        for n, id, kernel, active, promoted in session.rows("SWEPT")
    ]


def plan_of(session: Session, sweep: Sweep, known: Sequence[Weighed], size: float) -> SweepPlan:
    """Reads no row's body, so that a damaged one can be swept away. A workload with a promotion
    stays until that is withdrawn. Where `known` are not weighed, bytes are those of the rows."""
    going = sweep.choose(known, size)
    whole = [one for one in going.workloads if not one.promoted]
    asked = {
        "going": session.listed([one.n for one in whole]),
        "confined": session.listed([one.n for one in going.confined]),
        "superseded": going.superseded,
        "whole": sweep.workloads and sweep.ids is None,
        "kernel": sweep.kernel,
        "cutoff": sweep.cutoff,
    }
    [(trials, trial_bytes)] = session.rows("COUNT_TRIALS_GOING", **asked)
    [(timeline_bytes,)] = session.rows("TIMELINE_BYTES_GOING", **asked)
    [(runs,)] = session.rows("COUNT_RUNS_GOING", **asked)
    estimate = int(trial_bytes + timeline_bytes)
    report = GcReport(
        trials=trials,
        runs=runs,
        workloads=len(whole),
        bytes_freed=estimate,
        bytes_left=max(0, int(size) - estimate),
        kernels=FrozenMap(Counter(one.kernel for one in whole)),
        dry_run=True,
    )
    losing = going.confined if going.superseded else whole
    return SweepPlan(asked, report, frozenset(one.id for one in losing))


def plan_of_server(session: Session, sweep: Sweep) -> SweepPlan:
    """Bytes are those that rows hold: the server keeps freed room for rows to come, and shrinks
    its files as autovacuum sees fit."""
    known = weighed(session)
    size = sum(one.bytes for one in known)
    plan = plan_of(session, sweep, known, size)
    going = sweep.choose(known, size)
    gone = [one for one in going.workloads if not one.promoted]
    freed = sum(one.bytes for one in gone)
    if going.superseded:
        ids = {one.id for one in gone}
        freed += sum(one.superseded_bytes for one in going.confined if one.id not in ids)
    report = replace(plan.report, bytes_freed=int(freed), bytes_left=int(size - freed))
    return replace(plan, report=report)


def plan_of_file(session: Session, sweep: Sweep) -> SweepPlan:
    """A workload's share of the file is by what its rows hold; the first page of each table and
    index is nobody's. Nothing is weighed where the choice does not depend on it."""
    size = live_bytes(session.db)
    if sweep.max_bytes is None:
        return plan_of(session, sweep, _unweighed(session), size)
    known = weighed(session)
    [(roots,)] = session.rows("ROOT_PAGES")
    empty = roots * pragma(session.db, "page_size")
    scale = max(0, size - empty) / (sum(one.bytes for one in known) or 1.0)
    shares = [
        replace(one, bytes=one.bytes * scale, superseded_bytes=one.superseded_bytes * scale)
        for one in known
    ]
    return plan_of(session, sweep, shares, size)


def joined_reports(one: GcReport, two: GcReport) -> GcReport:
    """What two sweeps in a row came to."""
    return replace(
        two,
        trials=one.trials + two.trials,
        runs=one.runs + two.runs,
        workloads=one.workloads + two.workloads,
        bytes_freed=one.bytes_freed + two.bytes_freed,
        kernels=FrozenMap(Counter(one.kernels) + Counter(two.kernels)),
    )


def file_bytes(db: sqlite3.Connection) -> int:
    return pragma(db, "page_count") * pragma(db, "page_size")


def live_bytes(db: sqlite3.Connection) -> int:
    """Without the pages that wait to be used again."""
    used = pragma(db, "page_count") - pragma(db, "freelist_count")
    return used * pragma(db, "page_size")


def shrink(db: sqlite3.Connection, size: int) -> tuple[int, int]:
    """Gives the room back, unless others are in the way: then it is used for later trials.

    How much that was of `size`, and how much is in use."""
    with suppress(sqlite3.OperationalError):
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return max(0, size - file_bytes(db)), live_bytes(db)
