"""The race: more samples for every config that may still win, until few enough are left to duel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from whet.core.event import RaceAdvanced
from whet.core.status import Status
from whet.engine.steps.record import Candidate
from whet.engine.steps.samples import NOISY, Sampler
from whet.measure.racing.race import Exit, SampleRequest
from whet.measure.racing.stats import percent_text

# Configs sampled in one round trip; between two of these the budget is looked at.
BATCH = 32


def race(sampler: Sampler) -> tuple[list[Candidate], bool]:
    """Who is left, the best placed first, and whether the race came to its end.

    A stored config takes part with its stored samples. Only when these cannot decide is it built
    and measured again; from then on they are out of play, so that samples of two occasions are
    never mixed.
    """
    rounds, noise = 0, sampler.race.noise
    if noise > NOISY:
        sampler.recorder.note(
            f"times of the same config vary by {percent_text(math.expm1(noise))}, as if other work "
            "were running; fewer configs are compared, more often"
        )
    end = max(sampler.half_left, sampler.finals_s)  # the rest goes to the duel
    complete = not _cut_to(sampler, sampler.seconds_left - end)
    while requests := sampler.race.plan():
        if sampler.seconds_left <= end:
            complete = False
            break
        for some in _batched(requests, BATCH):
            if sampler.seconds_left > end:
                _take(sampler, some)
        rounds += 1
        sampler.recorder.emit(RaceAdvanced(rounds, left=len(sampler.race.live)))
    return _finalists(sampler), complete


def lowest_median(sampler: Sampler) -> Candidate | None:
    """Where everything had the same number of samples, there is no race."""
    timed = [c for c in sampler.candidates.values() if c.trial and c.trial.status is Status.OK]
    return min(timed, key=_median_then_order, default=None)


def _take(sampler: Sampler, requests: Sequence[SampleRequest]) -> None:
    """Single samples of configs at hand go in one round trip; the rest one by one."""
    wanted = [(sampler.candidates[request.id], request.samples) for request in requests]
    together = [c for c, samples in wanted if samples == 1 and c.timing is not None]
    taken = {candidate.id for candidate in together}
    times = sampler.round(together) if together else {}
    sampler.put_out([exit for id, ns in times.items() for exit in sampler.race.record(id, (ns,))])
    for candidate, samples in wanted:
        if candidate.id not in taken and sampler.race.verdict(candidate.id) == "in":
            sampler.sample(candidate, samples)


def _cut_to(sampler: Sampler, seconds: float) -> bool:
    """Leaves as many as two passes have the time for, if more: of few that are measured again more
    is known than of many that are not."""
    standing, policy = sampler.standing(), sampler.plan.race
    if len(standing) <= policy.finalists:
        return False
    spent, places = 0.0, 0
    for candidate in standing:
        timing = candidate.known_timing
        spent += policy.first_samples * (0.0 if timing is None else timing.median_ns / 1e9)
        places += spent <= seconds
    return _keep(sampler, max(places, policy.finalists))


def _finalists(sampler: Sampler) -> list[Candidate]:
    """More than can duel are left only when time ran out: then the best placed are."""
    _keep(sampler, sampler.plan.race.finalists)
    return sampler.standing()


def _keep(sampler: Sampler, places: int) -> bool:
    standing = sampler.standing()
    for place, candidate in enumerate(standing[places:], start=places + 1):
        reason = (
            f"place {place} of {len(standing)} when time ran out, which was enough for {places}"
        )
        sampler.put_out((*sampler.race.drop(candidate.id, reason), Exit(candidate.id, reason)))
    return len(standing) > places


def _batched(requests: Sequence[SampleRequest], size: int) -> Iterator[Sequence[SampleRequest]]:
    for start in range(0, len(requests), size):
        yield requests[start : start + size]


def _median_then_order(candidate: Candidate) -> tuple[float, int]:
    assert candidate.timing is not None
    return candidate.timing.median_ns, candidate.order
