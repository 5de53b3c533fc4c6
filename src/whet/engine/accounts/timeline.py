"""Keeps what a run's events say about who was busy with what, and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from whet.core.event import BuildFinished, DuelEnded, DuelStarted, Event, Measured, Waited
from whet.core.timeline import Span, Timeline

# In the order in which a visit to the device goes through them.
_VISIT = ("load", "first_call", "check", "warmup", "measure")


class TimelineKeeper:
    """Subscribes to a run's events, of which it keeps those that tell when something happened.

    `began` is the reading of `clock` at which the run began, now unless given. Listening costs
    next to nothing; the timeline is made when it is asked for.
    """

    def __init__(
        self, began: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._began = clock() if began is None else began
        self._timed: list[BuildFinished | Measured] = []
        self._duel_began: float | None = None
        self._duels: list[tuple[float, float]] = []
        self._waits: list[tuple[float, float]] = []

    def __call__(self, event: Event, at: float | None = None) -> None:
        """`at` is when it was heard, now unless given."""
        at = self._clock() if at is None else at
        if isinstance(event, BuildFinished | Measured):
            self._timed.append(event)
        elif isinstance(event, Waited):
            self._waits.append((event.started, event.ended))
        elif isinstance(event, DuelStarted):
            self._duel_began = at
        elif isinstance(event, DuelEnded) and self._duel_began is not None:
            self._duels.append((self._duel_began, at))
            self._duel_began = None

    def timeline(self) -> Timeline:
        spans = [Span("engine", "duel", start, end - start) for start, end in self._duels]
        spans += [Span("engine", "wait for others", a, b - a) for a, b in self._waits]
        for event in self._timed:
            spans += _build(event) if isinstance(event, BuildFinished) else _visit(event)
        spans = [found for span in spans if (found := _since(span, self._began))]
        return Timeline(tuple(sorted(spans, key=lambda span: (span.start_s, span.depth))))


def timeline_of(began: float, heard: Iterable[tuple[float, Event]]) -> Timeline:
    """Of a run that began at `began`, by the monotonic clock, and what was heard of it when."""
    keeper = TimelineKeeper(began)
    for at, event in heard:
        keeper(event, at)
    return keeper.timeline()


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
