"""The race: many configs, few samples, and nobody out who could still win.

First looks: configs arrive one by one and are compared with the best known one at once. The
comparison is between samples taken at different times, and the device may have changed pace in
between. So a close call waits until a config of earlier looks, the anchor, has been sampled again:
if it has moved, the looks since then were taken at an unknown pace between its two.

Rounds: those who survived the first looks take turns, and are compared within each turn. A pass
takes one sample of everybody. What slows the device down for a while slows a whole pass, so every
pass is first brought to the same level; then each config's location is the median over its passes.
The first looks, taken at other times, no longer count.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from whet.measure.racing.stats import (
    MEDIAN_GAP,
    Estimate,
    Looks,
    Noise,
    estimated,
    gap_degrees,
    location_width,
    low_median,
    percent_text,
    t_quantile,
    time_text,
)

if TYPE_CHECKING:
    from whet.measure.racing.stats import Array

Place = Literal["in", "out"]


@dataclass(frozen=True)
class RacePolicy:
    """All noises are relative, and the least that anybody may claim: `noise_floor` of one sample,
    `visit_noise` of a kernel's level between two visits, `rerun_noise` between two runs.

    A config is out at once when it is `hopeless` times slower than the best. A closer call waits
    until the device's pace has been checked, which happens every `anchor_every` such calls; one
    that misses by less than `second_visit` times is looked at once more before.
    A warm-up that is `hopeless_warm_up` times slower than the best, and `warm_up_slack_ns` more,
    ends a config without a sample. Rounds end at `finalists` configs, at ±`precision`, or after
    `max_samples` each; while more than `crowd` are left, at most half of them survive a round.
    """

    first_samples: int = 2
    growth: int = 2
    max_samples: int = 32
    finalists: int = 4
    crowd: int = 16
    confidence: float = 0.95
    precision: float = 0.01
    noise_floor: float = 0.005
    visit_noise: float = 0.01
    rerun_noise: float = 0.02
    hopeless: float = 1.5
    hopeless_warm_up: float = 4.0
    warm_up_slack_ns: float = 30_000.0
    anchor_every: int = 4
    second_visit: float = 1.0


@dataclass(frozen=True)
class SampleRequest:
    """Take `samples` more samples of `id`."""

    id: str
    samples: int


@dataclass(frozen=True)
class Exit:
    """`id` is out: `"12.3 µs ± 2 % cannot beat 9.8 µs ± 1 %"`."""

    id: str
    reason: str


@dataclass(frozen=True)
class RaceStanding:
    """`ns` is the location of all samples so far, None before the first; `reason` is why out."""

    id: str
    verdict: Place
    ns: float | None
    samples: int
    reason: str = ""


@dataclass
class _Entrant:
    order: int
    samples: list[float]
    reason: str = ""
    earlier_run: bool = False

    @property
    def ns(self) -> float | None:
        return low_median(self.samples) if self.samples else None


class Race:
    """A pure state machine over config ids: the same samples give the same verdicts.

    While configs arrive: `enter` and `record` each, and do what `plan(more=True)` asks for, which
    is seldom anything. When all have arrived: do what `plan()` asks for until it asks for nothing;
    those then in are the finalists. One that arrives later starts the rounds over.
    """

    def __init__(self, policy: RacePolicy | None = None) -> None:
        self.policy = policy or RacePolicy()
        self._entrants: dict[str, _Entrant] = {}
        self._live: dict[str, _Entrant] = {}
        self._looks = FirstPass(self.policy)
        self._rounds: Rounds | None = None

    def enter(self, id: str, order: int, prior: Sequence[float] = ()) -> tuple[Exit, ...]:
        """`order` is the author's. `prior` are samples of an earlier run: they stand for a first
        look, so that this config is sampled again only if somebody comes close to it."""
        if id in self._entrants:
            raise ValueError(f"config {id} is already in the race")
        entrant = _Entrant(order, list(prior), earlier_run=bool(prior))
        self._entrants[id] = self._live[id] = entrant
        self._rounds = None
        if prior:
            self._looks.add_prior(id, prior)
        return self._exits()

    def record(self, id: str, samples: Sequence[float]) -> tuple[Exit, ...]:
        """Takes in samples of `id`, and says who is out because of them."""
        if not samples:
            raise ValueError(f"no samples of config {id} to record")
        self._entrants[id].samples.extend(samples)
        if self._rounds is not None and self._rounds.waits_for(id):
            self._rounds.add(id, math.log(low_median(samples)))
        elif id in self._live:
            self._looks.add(id, samples)
        return self._exits()

    def drop(self, id: str, reason: str) -> tuple[Exit, ...]:
        """`id` failed. Says who else is out, now that nobody waits for it."""
        self._put_out(id, reason)
        return self._exits()

    def plan(self, more: bool = False) -> list[SampleRequest]:
        """What to sample next, in this order; nothing when the race is over, or, with `more`
        configs still to come, when no verdict is held up."""
        if self._rounds is None:
            wanted = self._looks.wanted(self.policy.anchor_every if more else 1)
            if wanted is not None:
                return [SampleRequest(*wanted)]
            if more or len(self._live) <= self.policy.finalists:
                return []
            self._rounds = Rounds(self.live, self.policy)
        return [SampleRequest(id, 1) for id in self._rounds.next_pass()]

    def verdict(self, id: str) -> Place:
        return "in" if id in self._live else "out"

    def slower(self, id: str, than: str) -> bool:
        """Whether all that is known of both, in or out, says so: their intervals do not meet."""
        pessimistic, optimistic = self._ends(than)[1], self._ends(id)[0]
        return optimistic > pessimistic

    def estimate(
        self, default: str, other: str, pairs: Sequence[tuple[float, float]] = ()
    ) -> Estimate | None:
        """How much faster `other` is, by its samples and the default's in this race, in or out, and
        by `pairs` of times that both took in turns since; None where one was never sampled."""
        policy, looks = self.policy, self._looks
        field = {
            id: Looks(
                [math.log(sample) for sample in one.samples],
                policy.rerun_noise if one.earlier_run else looks.visit_noise,
            )
            for id, one in self._entrants.items()
            if one.samples
        }
        return estimated(field, default, other, pairs, *looks.noise)

    @property
    def noise(self) -> float:
        """How much the times of a config vary, in a visit or between two, as far as was seen."""
        return max(self._looks.visit_noise, self._looks.noise[0])

    def _ends(self, id: str) -> tuple[float, float]:
        entrant = self._entrants.get(id)
        if entrant is None or entrant.ns is None:
            return -math.inf, math.inf
        half = self._looks.half_width(len(entrant.samples), earlier_run=entrant.earlier_run)
        return math.log(entrant.ns) - half, math.log(entrant.ns) + half

    def reason(self, id: str) -> str:
        """Why `id` is out; empty while it is in."""
        return self._entrants[id].reason

    @property
    def incumbent(self) -> str | None:
        """The one to beat."""
        if self._rounds is not None and self._rounds.rounds:
            return next(iter(self.live), None)
        return self._looks.incumbent

    def passes(self, ids: Sequence[str]) -> list[dict[str, float]]:
        """Nanoseconds of these in every pass that sampled them all, side by side."""
        return [] if self._rounds is None else shared_passes(self._rounds.passes, ids)

    @property
    def rounds(self) -> int:
        return 0 if self._rounds is None else self._rounds.rounds

    @property
    def live(self) -> tuple[str, ...]:
        """Who is in, best first."""
        ranked = sorted(self._live, key=lambda id: (self._centre(id), self._live[id].order))
        return tuple(ranked)

    def standing(self) -> list[RaceStanding]:
        """Those in, best first; then those out, fastest first."""
        out = [
            (entrant.ns or math.inf, entrant.order, id)
            for id, entrant in self._entrants.items()
            if id not in self._live
        ]
        return [self._standing(id) for id in (*self.live, *(id for *_, id in sorted(out)))]

    def _standing(self, id: str) -> RaceStanding:
        entrant = self._entrants[id]
        return RaceStanding(id, self.verdict(id), entrant.ns, len(entrant.samples), entrant.reason)

    def _centre(self, id: str) -> float:
        centre = None if self._rounds is None else self._rounds.centre(id)
        return self._looks.centre(id) if centre is None else centre

    def _put_out(self, id: str, reason: str) -> None:
        entrant = self._live.pop(id, None)
        if entrant is None:
            return
        entrant.reason = reason
        self._looks.remove(id)
        if self._rounds is not None:
            self._rounds.remove(id)

    def _exits(self) -> tuple[Exit, ...]:
        exits: list[Exit] = []
        legs = (self._looks,) if self._rounds is None else (self._looks, self._rounds)
        for leg in legs:
            exits.extend(Exit(id, reason) for id, reason in leg.out.items())
            leg.out.clear()
        for gone in exits:
            self._put_out(gone.id, gone.reason)
        return tuple(exits)


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


# From here on a config that is noisier than the others is believed to be.
_PASSES_TO_JUDGE_ONE = 8


def shared_passes(
    passes: Sequence[Mapping[str, float]], ids: Sequence[str]
) -> list[dict[str, float]]:
    """Nanoseconds of `ids`, from logs, in the passes that have them all."""
    whole = [one for one in passes if all(id in one for id in ids)]
    return [{id: math.exp(one[id]) for id in ids} for one in whole]


class Rounds:
    """`out` collects who cannot win any more, with the reason; whoever reads it empties it.

    The number of passes grows by `policy.growth` from round to round, and verdicts are given
    only at the end of a round: the more often one looks, the more often chance looks like a win.
    """

    def __init__(self, ids: Sequence[str], policy: RacePolicy) -> None:
        self.out: dict[str, str] = {}
        self.rounds = 0
        self.done = False
        self._policy = policy
        self._live = dict.fromkeys(ids)
        self.passes: list[dict[str, float]] = []
        self._left: dict[str, None] = {}
        self._round_ends_at = max(2, policy.first_samples)
        self._centres: dict[str, float] = {}

    def next_pass(self) -> list[str]:
        """Whom to sample once, in this order; the order turns so that a drift evens out."""
        if not self._left and not self.done:
            ids = list(self._live)
            if len(self.passes) % 2:
                ids.reverse()
            self._left = dict.fromkeys(ids)
            self.passes.append({})
        return list(self._left)

    def waits_for(self, id: str) -> bool:
        return id in self._left

    def add(self, id: str, log: float) -> None:
        self.passes[-1][id] = log
        del self._left[id]
        self._end_of_pass()

    def remove(self, id: str) -> None:
        self._live.pop(id, None)
        if id in self._left:
            del self._left[id]
            self._end_of_pass()

    def centre(self, id: str) -> float | None:
        """Log of the time relative to the field, as of the last finished round."""
        return self._centres.get(id)

    def _end_of_pass(self) -> None:
        if self._left or self.done:
            return
        if len(self._live) <= self._policy.finalists:
            self.done = True
        if self._live and len(self.passes) >= self._round_ends_at:
            self.rounds += 1
            self._round_ends_at *= self._policy.growth
            self._judge()

    def _judge(self) -> None:
        policy, ids, n = self._policy, list(self._live), len(self.passes)
        raw = np.array([[passed[id] for id in ids] for passed in self.passes])
        levels = np.median(raw, axis=1, keepdims=True)
        readings = raw - levels
        centres = np.sort(readings, axis=0)[(n - 1) // 2]
        halves = self._half_widths(readings)
        self._centres = dict(zip(ids, centres.tolist(), strict=True))
        best = int(np.argmin(centres + halves))
        times = np.exp(centres + np.median(levels)).tolist()
        texts = [
            f"{time_text(time)} ± {percent_text(math.expm1(half))}"
            for time, half in zip(times, halves.tolist(), strict=True)
        ]
        for index in np.flatnonzero(centres - halves > centres[best] + halves[best]).tolist():
            self._put_out(ids[index], f"{texts[index]} cannot beat {texts[best]}")
        self.done = float(halves[best]) <= policy.precision or n >= policy.max_samples
        ranked = [ids[index] for index in np.argsort(centres, kind="stable").tolist()]
        self._keep_best(ranked, dict(zip(ids, texts, strict=True)))
        self.done = self.done or len(self._live) <= policy.finalists

    def _keep_best(self, ranked: Sequence[str], texts: Mapping[str, str]) -> None:
        """At the end the finalists go on. Before it, of a crowd at most the better half does: if
        so many cannot be told apart, it matters little which one wins, and much what finding out
        costs."""
        policy = self._policy
        kept = policy.finalists if self.done else max(policy.crowd, math.ceil(len(ranked) / 2))
        onwards = f"{kept} enter the duel" if self.done else f"the best {kept} continue"
        for place, id in enumerate(ranked, start=1):
            if place > kept and id in self._live:
                reason = f"{texts[id]} is place {place} after {len(self.passes)} passes"
                self._put_out(id, f"{reason}, and {onwards}")

    def _half_widths(self, readings: Array) -> Array:
        n = len(readings)
        gaps = np.abs(np.diff(readings, axis=0))
        noise = np.full(gaps.shape[1], np.median(gaps) / MEDIAN_GAP)
        if n >= _PASSES_TO_JUDGE_ONE:
            noise = np.maximum(noise, np.median(gaps, axis=0) / MEDIAN_GAP)
        noise = np.maximum(noise, self._policy.noise_floor)
        quantile = t_quantile(self._policy.confidence, gap_degrees(gaps.size))
        return np.asarray(quantile * location_width(n) * noise)

    def _put_out(self, id: str, reason: str) -> None:
        self.out[id] = reason
        del self._live[id]
