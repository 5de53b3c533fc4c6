"""The part of a run that a check of bits has: what is compared with, and what it costs."""

from __future__ import annotations

import math

from whet.core.status import Status
from whet.core.trial import Trial
from whet.engine.log import log_note, warn
from whet.engine.recall.known import Knowledge
from whet.engine.steps.duel import Winner
from whet.engine.steps.record import Candidate
from whet.engine.steps.samples import Sampler
from whet.engine.target import Target, bit_check_of
from whet.measure.bench.bits import FREE_NS, BitCheck, Reference, ReferenceBench
from whet.measure.bench.protocol import Bench

# Samples of the best and of the fastest that was refused, taken in turns, to know the price.
ROUNDS = 9


def compared(bench: Bench, target: Target, known: Knowledge) -> Bench:
    """The bench, and what it runs compared where the target asks for it. What an earlier run
    measured has the reference's bits, or it would have failed."""
    check = bit_check_of(target)
    if check is None:
        return bench
    first = target.space.first
    trials = sorted(known.settled.values(), key=lambda trial: trial.config != first)
    stored = (Reference.stored(trial.facts) for trial in trials if trial.status.measured)
    return ReferenceBench(bench, check, next((one for one in stored if one), None))


def say_price(sampler: Sampler, winner: Winner | None, known: Knowledge) -> None:
    """How much faster the best would have been without the check."""
    bench = sampler.bench
    if not isinstance(bench, ReferenceBench):
        return
    for note in bench.notes:
        sampler.recorder.note(note)
        warn(f"{sampler.target.name}: {note}")
    if winner is None:
        return
    trials = {**known.settled, **{trial.config.id: trial for trial in sampler.recorder.trials}}
    text = _price(sampler, bench.check, winner.candidate, list(trials.values()))
    sampler.recorder.note(text)
    log_note(sampler.target.workload(), text)


def _price(sampler: Sampler, check: BitCheck, best: Candidate, trials: list[Trial]) -> str:
    refused = [
        (float(str(trial.facts[FREE_NS])), trial.config)
        for trial in trials
        if trial.status is Status.WRONG_RESULT and FREE_NS in trial.facts
    ]
    if not refused:
        return f"check={check} refused no config"
    free_ns, free = min(refused, key=lambda pair: (pair[0], pair[1].id))
    best_ns = math.inf if best.known_timing is None else best.known_timing.median_ns
    rival = sampler.candidates.get(free.id)
    if rival is not None and best.ready and rival.ready and sampler.seconds_left > 0:
        # A few samples chose the rival, which flatters it.
        taken = sampler.side_by_side([best, rival], ROUNDS)
        free_ns, best_ns = taken.get(rival.id, free_ns), taken.get(best.id, best_ns)
    many = f"{len(refused)} config{'' if len(refused) == 1 else 's'}"
    if free_ns >= best_ns:
        return f"check={check} refused {many}, none of them faster than the best"
    return (
        f"check={check} refused {many}; without it [{free}] would be the fastest, "
        f"{best_ns / free_ns:.3g} times as fast"
    )
