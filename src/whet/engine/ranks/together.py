"""A run among the ranks of a process group, which all use what one of them finds."""

from __future__ import annotations

from collections.abc import Callable

from whet.core.event import RunFinished, RunStarted
from whet.core.run import Result
from whet.core.status import Status
from whet.core.trial import Trial
from whet.engine.fallback.policy import choose
from whet.engine.ranks.adoption import adopt
from whet.engine.ranks.agreement import Agreed, Agreement, Progress
from whet.engine.ranks.board import Board, BoardLostError, group_board
from whet.engine.recovery.interrupt import Interrupted
from whet.engine.steps.run import OneRun


def agreed(one: OneRun, alone: Callable[[OneRun], Result]) -> Result:
    """Its own result or another rank's; `alone` is how to go on without the others."""
    board = group_board()
    if board is None:
        return alone(one)
    try:
        return _agreed(one, board)
    except BoardLostError as lost:
        one.recorder.note(f"each rank chooses for itself: {lost}")
        return alone(one)


def _agreed(one: OneRun, board: Board) -> Result:
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


def _adopted(one: OneRun, answer: Agreed) -> Result:
    one.known = one.recall()
    if one.answered and answer.best and one.known.incumbents[0].config == answer.best.config:
        return one.from_store()
    with one.shield.held():
        known = len(one.known.settled)
        result = adopt(answer, one.run, one.store, one.ledger, one.first(()), known)
    one.recorder.emit(RunStarted(result.run, 0, result.known))
    one.recorder.emit(RunFinished(result))
    return result


def _stopgap(one: OneRun, rank: int) -> Agreed:
    choice = choose(one.target, store=one.store)
    trial = Trial(one.run.workload.id, choice.config, Status.OK)
    return Agreed(rank, trial, reason=f"no result in time; {choice.reason}")
