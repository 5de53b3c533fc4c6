"""First looks: configs arrive one by one and are compared with the best known one at once.

The comparison is between samples taken at different times, and the device may have changed pace in
between. So a close call waits until a config of earlier looks, the anchor, has been sampled again:
if it has moved, the looks since then were taken at an unknown pace between its two.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from whet.measure.racing.policy import RacePolicy
from whet.measure.racing.stats import (
    MEDIAN_GAP,
    Noise,
    low_median,
    percent_text,
    time_text,
)

# So many times slower, and a single sample is enough: no outlier is that far off.
HOPELESS_BY_ONE_SAMPLE = 4.0

_MOVES_TO_LEARN_FROM = 3


@dataclass
class _Look:
    """One visit, at a level (the log of the device's slowness) between `low` and `high`."""

    logs: list[float]
    low: float
    high: float
    settled: bool


@dataclass
class _Entry:
    id: str
    measured: bool
    looks: list[_Look] = field(default_factory=list)
    centre: float = math.inf
    readings: int = 0
    visits: int = 0
    slack: float = 0.0

    @property
    def settled(self) -> bool:
        return self.looks[-1].settled

    def summarise(self) -> None:
        """A look at a well known level makes those at a vague one worthless."""
        self.slack = min((look.high - look.low) / 2 for look in self.looks)
        good = [look for look in self.looks if (look.high - look.low) / 2 <= self.slack]
        logs = [log - (look.low + look.high) / 2 for look in good for log in look.logs]
        self.centre, self.readings, self.visits = low_median(logs), len(logs), len(good)


class FirstPass:
    """`out` collects who cannot win any more, with the reason; whoever reads it empties it."""

    def __init__(self, policy: RacePolicy) -> None:
        self.out: dict[str, str] = {}
        self._policy = policy
        self._live: dict[str, _Entry] = {}
        self._noise = Noise(policy.noise_floor)
        self._moves: list[float] = []
        self._level = 0.0
        self._incumbent: _Entry | None = None
        self._reference: _Entry | None = None
        self._unsettled: dict[str, _Entry] = {}
        self._waiting: dict[str, _Entry] = {}

    @property
    def incumbent(self) -> str | None:
        """The one to beat: it has the best pessimistic end."""
        return None if self._incumbent is None else self._incumbent.id

    def centre(self, id: str) -> float:
        """Log of the time; infinite for what has not been looked at."""
        entry = self._live.get(id)
        return math.inf if entry is None else entry.centre

    def add_prior(self, id: str, samples: Sequence[float]) -> None:
        logs = [math.log(sample) for sample in samples]
        self._noise.add(logs)
        entry = _Entry(id, measured=False, looks=[_Look(logs, 0.0, 0.0, settled=True)])
        self._arrived(entry)

    def add(self, id: str, samples: Sequence[float]) -> None:
        logs = [math.log(sample) for sample in samples]
        self._noise.add(logs)
        entry = self._live.get(id)
        if entry is not None and entry is self._reference:
            self._settle(entry, logs)
            return
        if entry is None or not entry.measured:
            entry = _Entry(id, measured=True)
        # The very first look defines the level that all others are compared at.
        is_first = self._reference is None
        entry.looks.append(_Look(logs, self._level, self._level, settled=is_first))
        if is_first:
            self._reference = entry
        else:
            self._unsettled[entry.id] = entry
        self._arrived(entry)

    @property
    def noise(self) -> tuple[float, int]:
        """Of one sample, and how many degrees of freedom it is known with."""
        return self._noise.known

    def half_width(self, readings: int, *, earlier_run: bool) -> float:
        """How far from its true time, as a log, that many readings of a config may be."""
        noise = self._policy.rerun_noise if earlier_run else self.visit_noise
        return self._spread(readings, 1, noise)

    def remove(self, id: str) -> None:
        """`id` failed, or lost elsewhere."""
        entry = self._live.pop(id, None)
        if entry is not None:
            self._gone(entry)

    def wanted(self, waiting: int) -> tuple[str, int] | None:
        """Whom to sample again, and how often, once `waiting` verdicts depend on it."""
        if len(self._waiting) < waiting:
            return None
        best_settled = self._incumbent is not None and self._incumbent.settled
        for entry in self._waiting.values():
            if entry.readings == 1 and entry is not self._reference:
                return entry.id, 1
            if entry.settled and best_settled and entry is not self._reference:
                return entry.id, self._policy.first_samples
        if self._reference is None:
            return None
        return self._reference.id, self._policy.first_samples

    def _arrived(self, entry: _Entry) -> None:
        entry.summarise()
        self._live[entry.id] = entry
        best = self._incumbent
        if best is None or best.id == entry.id or self._high(entry) < self._high(best):
            self._incumbent = self._best()
            self._judge_all()
        else:
            self._judge(entry, best)

    def _settle(self, anchor: _Entry, logs: list[float]) -> None:
        """The anchor's new visit says at what level the looks since its last one were taken."""
        move = low_median(logs) - self._level - anchor.centre
        insort(self._moves, abs(move))
        if not self._noise.known[1]:  # single looks have left nothing else to tell it by
            self._noise.add([anchor.looks[-1].logs[-1], logs[0]])
        before = self._level
        if abs(move) > math.sqrt(2) * self._spread(len(logs), 1, self.visit_noise):
            self._level += move
        self._settle_between(min(before, self._level), max(before, self._level))
        anchor.looks.append(_Look(logs, self._level, self._level, settled=True))
        anchor.summarise()
        self._incumbent = self._best()
        self._judge_all()
        self._reference = self._best(measured=True)

    def _settle_between(self, low: float, high: float) -> None:
        for entry in self._unsettled.values():
            look = entry.looks[-1]
            look.low, look.high, look.settled = low, high, True
            entry.summarise()
        self._unsettled = {}

    def _judge_all(self) -> None:
        best = self._incumbent
        if best is not None:
            self._waiting.pop(best.id, None)
            for entry in tuple(self._live.values()):
                if entry is not best:
                    self._judge(entry, best)

    def _judge(self, entry: _Entry, best: _Entry) -> None:
        margin = self._low(entry) - self._high(best)
        if margin <= 0:
            self._waiting.pop(entry.id, None)
            return
        if entry.readings > 1:
            sure = entry.visits > 1 or margin > math.log(self._policy.second_visit)
            decided = entry.settled and best.settled and sure
            is_out = decided or margin > math.log(self._policy.hopeless)
        else:
            is_out = margin > math.log(HOPELESS_BY_ONE_SAMPLE)
        if not is_out:
            self._waiting[entry.id] = entry
            return
        self.out[entry.id] = f"{self._text(entry)} cannot beat {self._text(best)}"
        del self._live[entry.id]
        self._gone(entry)

    def _gone(self, entry: _Entry) -> None:
        self._waiting.pop(entry.id, None)
        self._unsettled.pop(entry.id, None)
        if entry is self._incumbent:
            self._incumbent = self._best()
        if entry is self._reference:
            # Nobody is left who knows the level before; what changed since is lost in the gap.
            self._settle_between(self._level, self._level)
            self._reference = self._best(measured=True)

    def _best(self, measured: bool = False) -> _Entry | None:
        field = (e for e in self._live.values() if e.measured or not measured)
        return min(field, key=self._high, default=None)

    def _low(self, entry: _Entry) -> float:
        return entry.centre - self._half_width(entry)

    def _high(self, entry: _Entry) -> float:
        return entry.centre + self._half_width(entry)

    def _half_width(self, entry: _Entry) -> float:
        noise = self.visit_noise if entry.measured else self._policy.rerun_noise
        return self._spread(entry.readings, entry.visits, noise) + entry.slack

    def _spread(self, readings: int, visits: int, visit_noise: float) -> float:
        between = visit_noise / math.sqrt(visits)
        return self._noise.half_width(readings, between, self._policy.confidence)

    @property
    def visit_noise(self) -> float:
        """Of a config's level between two visits: what is assumed, or seen where that is more."""
        if len(self._moves) < _MOVES_TO_LEARN_FROM:
            return self._policy.visit_noise
        return max(self._policy.visit_noise, self._moves[len(self._moves) // 2] / MEDIAN_GAP)

    def _text(self, entry: _Entry) -> str:
        half = percent_text(math.expm1(self._half_width(entry)))
        return f"{time_text(math.exp(entry.centre))} ± {half}"
