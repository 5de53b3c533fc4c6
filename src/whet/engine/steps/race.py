"""The race: more samples for every config that may still win, until few enough are left to duel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whet.core.event import RaceAdvanced
from whet.core.status import Status
from whet.engine.steps.record import Candidate
from whet.engine.steps.samples import Sampler
from whet.measure import Exit, SampleRequest

# Configs sampled in one round trip; between two of these the budget is looked at.
BATCH = 32


def race(sampler: Sampler) -> list[Candidate]:
    """Who is left, the best placed first.

    A stored config takes part with its stored samples. Only when these cannot decide is it built
    and measured again; from then on they are out of play, so that samples of two occasions are
    never mixed.
    """
    rounds = 0
    end = sampler.half_left  # the rest goes to the duel
    while sampler.seconds_left > end and (requests := sampler.race.plan()):
        for some in _batched(requests, BATCH):
            if sampler.seconds_left > end:
                _take(sampler, some)
        rounds += 1
        sampler.recorder.emit(RaceAdvanced(rounds, left=len(sampler.race.live)))
    return _finalists(sampler)


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


def _finalists(sampler: Sampler) -> list[Candidate]:
    """More than can duel are left only when time ran out: then the best placed are."""
    standing, places = sampler.standing(), sampler.plan.race.finalists
    for place, candidate in enumerate(standing[places:], start=places + 1):
        reason = f"place {place} of {len(standing)} when time ran out; only {places} could duel"
        sampler.put_out((*sampler.race.drop(candidate.id, reason), Exit(candidate.id, reason)))
    return sampler.standing()


def _batched(requests: Sequence[SampleRequest], size: int) -> Iterator[Sequence[SampleRequest]]:
    for start in range(0, len(requests), size):
        yield requests[start : start + size]


def _median_then_order(candidate: Candidate) -> tuple[float, int]:
    assert candidate.timing is not None
    return candidate.timing.median_ns, candidate.order
