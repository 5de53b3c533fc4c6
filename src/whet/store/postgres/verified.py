"""Which entries of a shared store count: those that trusted keys have signed, and those that were
promoted to be read in production."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from whet.core.config import Config
from whet.core.run import Run, chosen_by
from whet.core.status import Status
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.picking import picked
from whet.store.postgres.address import PostgresAddress
from whet.store.postgres.connections import Connection
from whet.store.postgres.signing import Promotion, Signable, TrustedKeys
from whet.store.postgres.store import PostgresSession, PostgresStore
from whet.store.protocol import Pick, WorkloadSummary

T = TypeVar("T")


@dataclass(frozen=True)
class _Checked:
    """What is left of a workload; `refused` names the rest, a line each."""

    runs: tuple[Run, ...] = ()
    trials: tuple[Trial, ...] = ()
    pick: Pick | None = None
    refused: tuple[str, ...] = ()

    @property
    def latest(self) -> dict[str, Trial]:
        """By config. Where the latest one is refused, the one before it stands."""
        order = {trial.config.id: trial for trial in self.trials}
        order.update({t.config.id: t for t in sorted(self.trials, key=lambda t: t.created)})
        return order


class VerifiedSession(PostgresSession):
    """What is refused is left out, as if it were not there, and named in the log, once each. The
    choice is made among the rest by this process, not by the database."""

    keys: TrustedKeys

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        found = self.checked(workload_id)
        return list(found.trials) if all else list(found.latest.values())

    def everything(self, workload_id: str) -> tuple[list[Trial], list[Trial], list[Run]]:
        found = self.checked(workload_id)
        return list(found.trials), list(found.latest.values()), list(found.runs)

    def latest(self, workload_id: str, config_id: str) -> Trial | None:
        return self.checked(workload_id).latest.get(config_id)

    def pick(self, workload_id: str) -> Pick | None:
        return self.checked(workload_id).pick

    def runs(self, workload_id: str) -> list[Run]:
        return list(self.checked(workload_id).runs)

    def run(self, run_id: str) -> Run | None:
        known = super().run(run_id)
        runs = () if known is None else self.checked(known.workload.id).runs
        return next((run for run in runs if run.id == run_id), None)

    def workloads_with_ok(self, kernel: str) -> list[Workload]:
        known = super().workloads_with_ok(kernel)
        return [one for one in known if self.pick(one.id) is not None]

    def summary(
        self, workload: Workload, trials: int, configs: int, ok: int, active: float
    ) -> WorkloadSummary:
        found = self.checked(workload.id)
        latest, pick = found.latest, found.pick
        return WorkloadSummary(
            workload=workload,
            trials=len(found.trials),
            configs=len(latest),
            ok=sum(trial.status is Status.OK for trial in latest.values()),
            active=active,
            best=None if pick is None else pick.trial,
            rivals=() if pick is None else pick.rivals,
        )

    def checked(self, workload_id: str) -> _Checked:
        revoked = {str(id): str(why) for id, why in self.rows("REVOKED_KEYS")}
        refused: list[str] = []

        def trusted(thing: Signable, name: str, signature: str | None, role: str) -> bool:
            why = self.keys.why_refused(thing, signature, revoked)
            if why is not None:
                refused.append(f"{name} of workload {workload_id}, written by {role}, {why}")
            return why is None

        runs: list[Run] = []
        for signature, role, *row in self.rows("SIGNED_RUNS", workload=workload_id):
            read = self.reader.runs([tuple(row)])
            runs += [run for run in read if trusted(run, f"run {run.id}", signature, role)]
        trials: list[Trial] = []
        for signature, role, *row in self.rows("SIGNED_TRIALS", workload=workload_id):
            tried = self.reader.trials([tuple(row)], workload_id)
            trials += [one for one in tried if trusted(one, f"trial {one.id}", signature, role)]
        found = _Checked(tuple(runs), tuple(trials))
        pick = picked(found.runs, found.trials, found.latest)
        if self.sql.promoted:
            pick = None
            for signature, role, run_id, trial_id, *_ in self.rows(
                "PROMOTION", workload=workload_id
            ):
                said = Promotion(workload_id, run_id, trial_id)
                if trusted(said, f"promotion of run {run_id}", signature, role):
                    by_id = {trial.id: trial for trial in trials}
                    chose = any(run.id == run_id for run in runs)
                    pick = Pick(by_id[trial_id]) if chose and trial_id in by_id else None
        for line in refused:
            self.reader.leave_out(line)
        if self.sql.promoted and pick is None:
            return _Checked(refused=tuple(refused))
        return _Checked(found.runs, found.trials, pick, tuple(refused))


class VerifiedStore(PostgresStore):
    """A shared store of which only what trusted keys have signed is read."""

    def __init__(
        self, address: PostgresAddress, *, read_only: bool = False, folder: Path | None = None
    ) -> None:
        assert address.trusted_keys is not None
        self._keys = TrustedKeys.read(address.trusted_keys)
        super().__init__(address, read_only=read_only, folder=folder)

    def refusals(self, workload_id: str) -> list[str]:
        """What is refused, and why."""
        return list(self.read(lambda session: session.checked(workload_id).refused))

    def read(self, work: Callable[[VerifiedSession], T], *, one_state: bool = False) -> T:
        return super().read(work, one_state=True)

    def _reading(self, db: Connection) -> VerifiedSession:
        session = VerifiedSession(db, self._view, self._reader)
        session.keys = self._keys
        return session


def open_direct(
    address: PostgresAddress, *, read_only: bool = False, folder: Path | None = None
) -> PostgresStore:
    """The store on the server itself, as its address says it is to be read."""
    kind = PostgresStore if address.trusted_keys is None else VerifiedStore
    return kind(address, read_only=read_only, folder=folder)


@dataclass(frozen=True)
class PromotionReport:
    """`config` is what production uses from now on; None where nothing was promoted, and `reason`
    says why."""

    workload: Workload
    config: Config | None
    run_id: str = ""
    reason: str = ""
    changed: bool = True


def promote(
    store: PostgresStore, workloads: Iterable[Workload], *, note: str = "", dry_run: bool = False
) -> list[PromotionReport]:
    """Promotes the choice of each workload, as the store reads it. What is promoted already stays
    as it is."""
    return [_promoted(store, workload, note, dry_run) for workload in workloads]


def withdraw(
    store: PostgresStore, workloads: Iterable[Workload], *, note: str = "", dry_run: bool = False
) -> list[PromotionReport]:
    reports = []
    for workload in workloads:
        known = store.promotion(workload.id)
        if known is None:
            reports.append(PromotionReport(workload, None, reason="is not promoted", changed=False))
            continue
        if not dry_run:
            store.change("WITHDRAW", workload=workload.id, note=note)
        reports.append(PromotionReport(workload, None, known.run_id))
    return reports


def _promoted(
    store: PostgresStore, workload: Workload, note: str, dry_run: bool
) -> PromotionReport:
    pick = store.pick(workload.id)
    run = None if pick is None else chosen_by(store.runs(workload.id), pick.trial.config)
    if pick is None or run is None:
        reason = "has no result of a finished run; tune it first"
        return PromotionReport(workload, None, reason=reason, changed=False)
    if pick.rivals:
        reason = "is contested by merged results; tune it again first"
        return PromotionReport(workload, None, reason=reason, changed=False)
    said = Promotion(workload.id, run.id, pick.trial.id)
    changed = store.promotion(workload.id) != said
    if changed and not dry_run:
        signature = None if store.key is None else store.key.sign(said)
        store.change(
            "PROMOTE",
            workload=workload.id,
            run=run.id,
            trial=pick.trial.id,
            note=note,
            signature=signature,
        )
    return PromotionReport(workload, pick.trial.config, run.id, changed=changed)
