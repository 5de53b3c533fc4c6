"""Where another process tunes the same: its turn is waited for, or its choice taken over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from whet.core.errors import StoreError, TuningFailedError
from whet.core.event import RunFinished, RunStarted, Waited, Waiting
from whet.core.frozen import FrozenMap
from whet.core.process import Holder
from whet.core.run import Outcome, Result, Run
from whet.core.status import Status
from whet.core.trial import Cost, Trial, new_id
from whet.engine.fallback.untuned import choose
from whet.engine.guard import Interrupted, WallLedger
from whet.engine.log import log_event
from whet.engine.ranks import Agreed, Agreement, Board, BoardLostError, Progress, group_board
from whet.engine.steps.run import TuningRun
from whet.engine.turns import Turn
from whet.store import Store


def after_waiting(one: TuningRun, turn: Turn) -> Result:
    """What the other process finished, else a tuning that goes on from its trials; where the wait
    took all the time there was, the best that is known by then."""
    wait = _Wait(one)
    try:
        with one.ledger.phase("queue"):
            mine = turn.wait(wait.most_s, wait.told)
    except KeyboardInterrupt:
        wait.ended()
        with one.shield.held():
            result = _best_known(one, f"interrupted while {turn.holder.name} was tuning this")
        raise Interrupted(result) from None
    wait.ended()
    if not mine:
        return _in_the_meantime(one, wait.given_up(turn.holder))
    one.start_now()
    one.known = one.recall()
    if one.out_of_time and not one.answered:
        whom = wait.holder.name
        return _in_the_meantime(one, f"budget spent waiting for {whom}, which did not finish")
    return one.tuned()


class _Wait:
    """One wait, and who hears of it. `most_s` is what the budget and the setting leave for it."""

    def __init__(self, one: TuningRun) -> None:
        self._one = one
        self._patience_s = one.settings.agree_wait_s
        self._by_budget = one.seconds_left < self._patience_s
        self.most_s = max(0.0, min(one.seconds_left, self._patience_s))
        self._began = time.monotonic()
        self.holder = Holder()
        self._said = False

    def told(self, holder: Holder) -> None:
        self.holder = holder
        if not self.most_s:
            return
        self._said = True
        self._one.recorder.emit(Waiting(self._one.run, holder, self.most_s))
        log_event(
            "waiting",
            self._one.run.workload,
            pick=None,
            source="none",
            cost_s=time.monotonic() - self._began,
            reason=f"{holder}; waiting up to {self.most_s:.3g} s",
            level=logging.WARNING,
        )

    def ended(self) -> None:
        if self._said:
            self._one.recorder.emit(Waited(self._began, time.monotonic()))

    def given_up(self, holder: Holder) -> str:
        still = f"{holder.name}, which is still tuning this"
        if holder.since_text:
            still += f" ({holder.since_text})"
        if self._by_budget:
            return f"budget spent waiting for {still}"
        return f"waited {self._patience_s:g} s (agree_wait) for {still}"


def _in_the_meantime(one: TuningRun, why: str) -> Result:
    """The best known; where nothing was measured, what is used without a tuning."""
    found = _best_known(one, f"{why}; using the best known so far")
    if found is not None:
        return found
    choice = choose(one.target, store=one.store, mode="cached")
    best = Trial(one.run.workload.id, choice.config, Status.OK)
    return _unfinished(one, best, f"{why}; using [{choice.config}]: {choice.reason}")


def _best_known(one: TuningRun, why: str) -> Result | None:
    one.known = one.recall()
    best = one.known.best
    return None if best is None else _unfinished(one, best, why)


def _unfinished(one: TuningRun, best: Trial, why: str) -> Result:
    """Of a run that did nothing but wait, which is not worth a row in the store."""
    one.recorder.note(f"{why}; tune again for a final result")
    wall = one.ledger.close()
    run = replace(
        one.run,
        outcome=Outcome.INTERRUPTED,
        best=best.config,
        cost=Cost(FrozenMap(), wall),
        wall_s=sum(wall.values()),
    )
    result = Result(
        run=run,
        best=best,
        first=one.first(()),
        trials=(),
        known=len(one.known.settled),
        source="waited",
        notes=tuple(one.recorder.notes),
    )
    one.recorder.emit(RunFinished(result))
    return result


def agreed(one: TuningRun, alone: Callable[[TuningRun], Result]) -> Result:
    """Its own result or another rank's; `alone` is how to go on without the others."""
    board = group_board()
    if board is None:
        return alone(one)
    try:
        return _agreed(one, board)
    except BoardLostError as lost:
        one.recorder.note(f"each rank chooses for itself: {lost}")
        return alone(one)


def _agreed(one: TuningRun, board: Board) -> Result:
    agreement = Agreement(
        board,
        f"{one.run.workload.id}/{one.run.space_id}",
        one.settings.agree_wait_s,
        tune=one.tuned,
        progress=lambda: Progress(len(one.recorder.trials), one.recorder.best),
        stopgap=lambda: _stopgap(one, board.rank),
    )
    try:
        answer = agreement.reach()
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(None) from None
    return answer if isinstance(answer, Result) else _adopted(one, answer)


def _adopted(one: TuningRun, answer: Agreed) -> Result:
    one.known = one.recall()
    if one.answered and answer.best and one.known.incumbents[0].config == answer.best.config:
        return one.from_store()
    with one.shield.held():
        known = len(one.known.settled)
        result = adopt(answer, one.run, one.store, one.ledger, one.first(()), known)
    one.recorder.emit(RunStarted(result.run, 0, result.known))
    one.recorder.emit(RunFinished(result))
    return result


def _stopgap(one: TuningRun, rank: int) -> Agreed:
    choice = choose(one.target, store=one.store)
    trial = Trial(one.run.workload.id, choice.config, Status.OK)
    return Agreed(rank, trial, reason=f"no result in time; {choice.reason}")


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
