"""Takes over what another rank chose, into the result and into the store of this one."""

from __future__ import annotations

import time
from dataclasses import replace

from whet.core.errors import StoreError, TuningFailedError
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Result, Run
from whet.core.trial import Cost, Trial, new_id
from whet.engine.accounts.ledger import WallLedger
from whet.engine.ranks.agreement import Agreed
from whet.store import Store


def adopt(
    agreed: Agreed, run: Run, store: Store, ledger: WallLedger, first: Trial | None, known: int
) -> Result:
    """The choice as a result of this rank, and from now on what its store answers.

    A choice that was never measured is not written down, so that a later process tunes. A store
    that cannot be written does not keep anybody from using the choice; a note says so.
    """
    wall = dict(ledger.close())
    wall["queue"] += wall.pop("idle")
    run = replace(
        run,
        id=new_id(),
        search="agreed",
        started=max(time.time(), run.started),
        outcome=Outcome.FAILED if agreed.best is None else Outcome.FINISHED,
        best=None if agreed.best is None else agreed.best.config,
        equals=agreed.equals,
        cost=Cost(FrozenMap(), FrozenMap({**wall, "idle": 0.0})),
        wall_s=sum(wall.values()),
    )
    notes = [f"rank {agreed.rank} chose" + (f": {agreed.reason}" if agreed.reason else "")]
    try:
        _keep(agreed.best, run, store)
    except StoreError as error:
        notes.append(f"the choice is not saved on this rank: {error}")
    if agreed.best is None:
        raise TuningFailedError(f"{agreed.reason} (on rank {agreed.rank})")
    return Result(
        run=run,
        best=agreed.best,
        first=first,
        trials=(),
        known=known,
        source="stored",
        equals=agreed.equals,
        notes=tuple(notes),
    )


def _keep(best: Trial | None, run: Run, store: Store) -> None:
    """The samples stay those of the rank that took them."""
    if best is not None and best.timing is None:
        return
    store.put_workload(run.workload)
    if best is not None:
        last = store.latest(run.workload.id, best.config.id)
        if last is None or (last.status, last.timing) != (best.status, best.timing):
            store.append([best.superseded_by(run_id=run.id, created=run.started)])
    store.save_run(run)
