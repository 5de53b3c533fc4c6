"""Promotions: what production reads. The database lets only the role promoter make them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from whet.core.config import Config
from whet.core.run import chosen_by
from whet.core.workload import Workload
from whet.store.postgres.signing import Promotion
from whet.store.postgres.store import PostgresStore


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
            store.change("WITHDRAW", {"workload": workload.id, "note": note})
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
            {
                "workload": workload.id,
                "run": run.id,
                "trial": pick.trial.id,
                "note": note,
                "signature": signature,
            },
        )
    return PromotionReport(workload, pick.trial.config, run.id, changed=changed)
