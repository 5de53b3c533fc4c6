"""The answer that the store has already."""

from __future__ import annotations

from dataclasses import replace

from whet.core.config import Config
from whet.core.cost import Cost
from whet.core.coverage import Stop
from whet.core.event import RunFinished, RunStarted
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Result, Run
from whet.core.trial import Trial
from whet.engine.accounts.ledger import WallLedger
from whet.engine.recall.known import Knowledge
from whet.engine.recall.sources import keep_place
from whet.engine.steps.record import Recorder
from whet.store import Store


def stored_answer(
    store: Store,
    run: Run,
    known: Knowledge,
    first: Trial | None,
    ledger: WallLedger,
    recorder: Recorder,
) -> Result:
    """As the result of `run`, which has nothing left to do; `first` is the author's first config.
    Itself it is not stored."""
    keep_place(store, run.workload)
    best, stored, tried = known.incumbents[0], known.run, len(known.settled)
    equals: tuple[Config, ...] = stored.equals if stored else ()
    wall = ledger.close()
    stopped = None if stored is None else stored.stopped
    run = replace(
        run,
        tried=tried,
        stopped=Stop.COMPLETE if tried == run.space_size else stopped,
        # To go on, a further run has to exceed the budget of the one that answers.
        budget=run.budget if stored is None else stored.budget,
        outcome=Outcome.FINISHED,
        best=best.config,
        equals=equals,
        paired_speedup=None
        if stored is None or stored.best != best.config
        else stored.paired_speedup,
        exhaustive=stored.exhaustive if stored else False,
        cost=Cost(FrozenMap(), wall),
        wall_s=sum(wall.values()),
    )
    result = Result(
        run=run, best=best, first=first, trials=(), known=tried, source="stored", equals=equals
    )
    recorder.emit(RunStarted(run, 0, tried))
    recorder.emit(RunFinished(result))
    return result
