"""The answer that the store has already."""

from __future__ import annotations

from whet.core.event import RunFinished, RunStarted
from whet.core.run import Result, Run
from whet.engine.accounts.ledger import WallLedger
from whet.engine.recall.known import Knowledge
from whet.engine.recall.sources import keep_place
from whet.engine.steps.record import Recorder
from whet.store import Store


def stored_answer(
    store: Store, run: Run, known: Knowledge, ledger: WallLedger, recorder: Recorder
) -> Result:
    """As the result of `run`, which has nothing left to do."""
    keep_place(store, run.workload)
    result = known.answer(run, ledger)
    recorder.emit(RunStarted(result.run, 0, result.known))
    recorder.emit(RunFinished(result))
    return result
