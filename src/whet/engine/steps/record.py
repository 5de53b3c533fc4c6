"""Writes down what happens to each config, says so, and keeps when it happened."""

from __future__ import annotations

import contextlib
import math
import shlex
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.errors import ConfigFailure, StoreError, option
from whet.core.event import (
    BestChanged,
    BuildFinished,
    DuelEnded,
    DuelStarted,
    Event,
    Measured,
    Noted,
    TrialFinished,
    Waited,
)
from whet.core.frozen import FrozenMap
from whet.core.run import Run
from whet.core.status import Status
from whet.core.timeline import Span, Timeline
from whet.core.timing import Timing
from whet.core.trial import Cost, Trial
from whet.engine.guard import Shield
from whet.store import Store

_TIMED = (BuildFinished, Measured, Waited, DuelStarted, DuelEnded)


@dataclass
class Candidate:
    """A config on its way through one run. `stored` holds what an earlier run knew of it;
    `hopeless` says that its warm-up alone was too slow for it to be sampled."""

    config: Config
    order: int
    artifact: Any = None
    ready: bool = False
    timing: Timing | None = None
    facts: FrozenMap[Any] = field(default_factory=FrozenMap)
    cost: Cost = field(default_factory=Cost)
    stored: Trial | None = None
    trial: Trial | None = None
    hopeless: bool = False
    id: str = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.config.id

    @property
    def known_timing(self) -> Timing | None:
        return self.timing or (self.stored.timing if self.stored else None)


class Recorder:
    """Every outcome becomes a trial in the store the moment it is known.

    `timed` has the events that tell when something happened, for the run's timeline, and
    `heard_at` is when the last sign of progress was, for its watchdog.
    """

    def __init__(
        self,
        store: Store,
        run: Run,
        subscribers: Sequence[Callable[[Event], None]],
        shield: Shield,
    ) -> None:
        self._store = store
        self._shield = shield
        self._run = run
        self._subscribers = tuple(subscribers)
        self._trials: dict[str, Trial] = {}
        self.best: Trial | None = None
        self.notes: list[str] = []
        self.timed: list[tuple[float, Event]] = []
        self.heard_at = time.monotonic()

    @property
    def trials(self) -> tuple[Trial, ...]:
        """What this run found out; not what it merely remembered."""
        return tuple(self._trials.values())

    def emit(self, event: Event) -> None:
        now = time.monotonic()
        if not isinstance(event, Noted):  # which may be the watchdog's own
            self.heard_at = now
        if isinstance(event, _TIMED):
            self.timed.append((now, event))
        for subscriber in self._subscribers:
            # A display that fails must not cost anybody a measurement.
            with contextlib.suppress(Exception):
                subscriber(event)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            self.emit(Noted(text))

    def failed(self, candidate: Candidate, failure: ConfigFailure) -> Trial:
        return self.failed_all([(candidate, failure)])[0]

    def failed_all(self, failures: Sequence[tuple[Candidate, ConfigFailure]]) -> list[Trial]:
        """The same for many, in one transaction."""
        news = [
            (
                candidate,
                self._trial(
                    candidate,
                    failure.status,
                    error=failure.message,
                    limit=failure.limit,
                    timing=None,
                ),
            )
            for candidate, failure in failures
        ]
        self._keep(news)
        return [trial for _, trial in news]

    def measured(self, candidate: Candidate, status: Status, reason: str = "") -> Trial:
        """Writes a new row only when something about the config has changed."""
        return self.measured_all([(candidate, status, reason)])[0]

    def measured_all(self, outcomes: Sequence[tuple[Candidate, Status, str]]) -> list[Trial]:
        """The same for many, in one transaction."""
        news = [
            (candidate, self._outcome(candidate, status, reason))
            for candidate, status, reason in outcomes
        ]
        self._keep([(c, trial) for c, trial in news if trial is not (c.trial or c.stored)])
        return [trial for _, trial in news]

    def settle(
        self, candidates: Iterable[Candidate], kept: Collection[str], lost: Mapping[str, str]
    ) -> None:
        """Everything measured that is not kept, by its id, was outraced; `lost` says by how much
        where that is known."""
        outcomes = []
        for candidate in candidates:
            last = candidate.trial or candidate.stored
            if last is None or not last.status.measured:
                continue
            if candidate.id in kept:
                outcomes.append((candidate, Status.OK, ""))
            else:
                reason = lost.get(candidate.id, last.error)
                outcomes.append((candidate, Status.OUTRACED, reason))
        self.measured_all(outcomes)

    def consider_best(self, trial: Trial) -> None:
        """What was timed one launch at a time is best only where nothing was timed better."""
        if not trial.status.measured or trial.timing is None:
            return
        if self.best is None or _rank(trial.timing) < _rank(self.best.timing):
            self.best = trial
            self.emit(BestChanged(trial))

    def why_nothing_works(
        self, settled: Sequence[Trial], budget: Budget, writers: Mapping[str, str]
    ) -> str:
        """The outcomes of this run, or `settled` ones where it had nothing to try. `writers` are
        who wrote the runs, by their ids."""
        trials = self.trials or settled
        if not trials:
            if budget.seconds is None:
                return "was tried: no build finished"
            ran_out = f"the budget of {budget.text} ran out before one was built and measured"
            return f"was tried: {ran_out}; increase it"
        counts = ", ".join(
            f"{n} {status}" for status, n in Counter(t.status for t in trials).items()
        )
        failed = next((trial for trial in trials if trial.error), None)
        first = f"; first: [{failed.config}] {failed.error.splitlines()[0]}" if failed else ""
        if self.trials:
            return f"works: {counts}{first}"
        named = sorted({writers.get(trial.run_id, "") for trial in trials} - {""})
        by = f", by {', '.join(named)}" if named else ""
        kernel = shlex.quote(self._run.workload.kernel)
        again = (
            f"to try again, use {option('store', ':memory:')}, or forget all of this kernel with "
            f"whet store gc --kernel {kernel}"
        )
        return f"works (according to the store{by}): {counts}{first}; {again}"

    def _outcome(self, candidate: Candidate, status: Status, reason: str) -> Trial:
        """What the config already had, where that still holds."""
        last = candidate.trial or candidate.stored
        if last is None or (candidate.timing is not None and last.timing != candidate.timing):
            return self._trial(candidate, status, error=reason, timing=candidate.timing)
        if last.status is status:
            return last
        return last.superseded_by(
            status=status, error=reason, run_id=self._run.id, created=time.time()
        )

    def _trial(self, candidate: Candidate, status: Status, **outcome: Any) -> Trial:
        return Trial(
            workload_id=self._run.workload.id,
            config=candidate.config,
            status=status,
            cost=candidate.cost,
            facts=candidate.facts,
            run_id=self._run.id,
            created=time.time(),
            **outcome,
        )

    def _keep(self, news: Sequence[tuple[Candidate, Trial]]) -> None:
        if not news:
            return
        with self._shield.held():
            try:
                self._store.append([trial for _, trial in news])
            except StoreError:
                self._remember(news)
                for trial in (trial for _, trial in news if trial.status is Status.OK):
                    self.consider_best(trial)
                raise
            self._remember(news)

    def _remember(self, news: Sequence[tuple[Candidate, Trial]]) -> None:
        for candidate, trial in news:
            candidate.trial = trial
            if candidate.stored is None or candidate.timing is not None or trial.status.failed:
                self._trials[trial.config.id] = trial
            self.emit(TrialFinished(trial, known=candidate.stored is not None))


def _rank(timing: Timing | None) -> tuple[bool, float]:
    return (True, math.inf) if timing is None else (timing.host_bound, timing.median_ns)


# In the order in which a visit to the device goes through them.
_VISIT = ("load", "first_call", "check", "warmup", "measure")


def timeline_of(began: float, heard: Iterable[tuple[float, Event]]) -> Timeline:
    """Of a run that began at `began`, by the monotonic clock, and what was heard of it when."""
    spans: list[Span] = []
    duel_began: float | None = None
    for at, event in heard:
        if isinstance(event, BuildFinished):
            spans += _build(event)
        elif isinstance(event, Measured):
            spans += _visit(event)
        elif isinstance(event, Waited):
            waited_s = event.ended - event.started
            spans.append(Span("engine", "wait for others", event.started, waited_s))
        elif isinstance(event, DuelStarted):
            duel_began = at
        elif isinstance(event, DuelEnded) and duel_began is not None:
            spans.append(Span("engine", "duel", duel_began, at - duel_began))
            duel_began = None
    inside = [found for span in spans if (found := _since(span, began))]
    return Timeline(tuple(sorted(inside, key=lambda span: (span.start_s, span.depth))))


def _build(event: BuildFinished) -> Iterator[Span]:
    """A build whose start nobody knows is left out."""
    if event.started <= 0.0:
        return
    name = "build" if event.ok else f"build, {event.status}"
    around = Span(f"worker {event.worker}", name, event.started, event.seconds, event.config.id)
    yield around
    yield from _parts(around, event.stages)


def _visit(event: Measured) -> Iterator[Span]:
    many = len(event.configs) != 1
    around = Span(
        "device",
        f"{event.kind} of {len(event.configs)} configs" if many else event.kind,
        event.started,
        event.ended - event.started,
        "" if many else event.configs[0].id,
    )
    yield around
    yield from _parts(around, {name: event.seconds.get(name, 0.0) for name in _VISIT})


def _parts(around: Span, seconds: Mapping[str, float]) -> Iterator[Span]:
    """One after another from the start: only how long each took is known, and their order.

    Clocks of two processes may disagree; the parts then share what there is.
    """
    total = sum(seconds.values())
    scale = min(1.0, around.seconds / total) if total > 0 else 0.0
    start = around.start_s
    for name, part in seconds.items():
        if part > 0:
            yield Span(around.lane, name, start, part * scale, around.config_id, depth=1)
            start += part * scale


def _since(span: Span, began: float) -> Span | None:
    """What began before the run is cut at its beginning; None for what had ended by then."""
    start, end = max(span.start_s, began), span.start_s + span.seconds
    if end <= began:
        return None
    return Span(span.lane, span.name, start - began, end - start, span.config_id, span.depth)
