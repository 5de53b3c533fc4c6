"""What an outbox brings to a server: any number of times, in one transaction each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from whet.core.run import Outcome, Run
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.postgres.outbox import OutboxEntry
from whet.store.postgres.store import PostgresStore
from whet.store.postgres.transaction import WriteTransaction


def receive(store: PostgresStore, entries: Sequence[OutboxEntry]) -> None:
    """All or none. A trial that comes late does not stand for its config if a younger one is there,
    and a run that has ended stays as it is. A run that chose a config is the choice if
    nobody has had the lease since; without a lease, if there is no choice yet. Else it is kept as
    one that was cut short, so that only its trials count."""
    things = [(entry.kind, entry.thing()) for entry in entries]
    tokens = {entry.thing().id: entry.token for entry in entries if entry.kind == "run"}
    trials = [thing for kind, thing in things if kind == "trial"]
    signed = {
        thing.id: entry.signature
        for entry, (kind, thing) in zip(entries, things, strict=True)
        if kind in ("trial", "run") and entry.signature
    }

    def work(to: WriteTransaction) -> None:
        _lock_all(to, things)
        for kind, thing in things:
            if kind == "run" and not _is_over(to, thing):
                chooses = _may_choose(to, thing, tokens[thing.id])
                to.save_run(thing if chooses else _late(thing), signed.get(thing.id))
        to.take_trials(trials, _standing(trials), signed)
        for kind, thing in things:
            if kind == "timeline":
                to.save_timeline(*thing)
            elif kind == "miss":
                to.miss(thing)
            elif kind == "forget":
                to.forget_missed(thing)

    store.write(work)


def _lock_all(to: WriteTransaction, things: Sequence[tuple[str, Any]]) -> None:
    """Everybody in one order, so that two batches never wait for each other."""
    brought: list[Workload] = []
    named = set()
    for kind, thing in things:
        if kind in ("workload", "run"):
            brought.append(thing if kind == "workload" else thing.workload)
        elif kind == "trial":
            named.add(thing.workload_id)
    for workload in sorted(brought, key=lambda one: one.id):
        to.put_workload(workload)
    to.lock(named | {workload.id for workload in brought})


def _may_choose(to: WriteTransaction, run: Run, token: int | None) -> bool:
    if not run.chose:
        return True
    if token is None:
        here = {"workload": run.workload.id, "run": run.id}
        return to.db.execute(to.sql.HAS_CHOICE, here).fetchone() is None
    last = to.db.execute(to.sql.LAST_TOKEN, (run.workload.id,)).fetchone()
    return last is None or int(last[0]) == token


def _late(run: Run) -> Run:
    return replace(run, outcome=Outcome.INTERRUPTED)


def _standing(trials: Sequence[Trial]) -> list[str]:
    latest = {(trial.workload_id, trial.config.id): trial.id for trial in trials}
    return list(latest.values())


def _is_over(to: WriteTransaction, run: Run) -> bool:
    known = to.run(run.id)
    return known is not None and known.outcome is not Outcome.RUNNING
