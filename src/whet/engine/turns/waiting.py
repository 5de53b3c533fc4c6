"""Another process tunes the same: this one waits, says so, and goes on with what that found."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from whet.core.event import RunFinished, Waited, Waiting
from whet.core.frozen import FrozenMap
from whet.core.process import Holder
from whet.core.run import Outcome, Result
from whet.core.status import Status
from whet.core.trial import Cost, Trial
from whet.engine.fallback.policy import choose
from whet.engine.log import log_event
from whet.engine.recovery.interrupt import Interrupted
from whet.engine.steps.run import OneRun
from whet.engine.turns.lock import Turn


def after_waiting(one: OneRun, turn: Turn) -> Result:
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

    def __init__(self, one: OneRun) -> None:
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


def _in_the_meantime(one: OneRun, why: str) -> Result:
    """The best known; where nothing was measured, what is used without a tuning."""
    found = _best_known(one, f"{why}; using the best known so far")
    if found is not None:
        return found
    choice = choose(one.target, store=one.store, mode="cached")
    best = Trial(one.run.workload.id, choice.config, Status.OK)
    return _unfinished(one, best, f"{why}; using [{choice.config}]: {choice.reason}")


def _best_known(one: OneRun, why: str) -> Result | None:
    one.known = one.recall()
    best = one.known.best
    return None if best is None else _unfinished(one, best, why)


def _unfinished(one: OneRun, best: Trial, why: str) -> Result:
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
