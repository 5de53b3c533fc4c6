"""A bench with one process for each mode, of which one works at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.doctor.modes.variants import EAGER
from whet.measure import RemoteBench
from whet.measure.bench.protocol import Answer, Sampled, Visit
from whet.measure.timer import joined

# How often a mode and eager take turns: as often as the time allows, and at least as often as
# something can be shown at 99 %. The number does not depend on what the rounds say.
ROUNDS, LEAST_ROUNDS, ROUNDS_S = 21, 9, 10.0

_EAGER = Config({"mode": EAGER})


class ModeBench:
    """A process starts when its mode is first visited, so that no other one is compiled or timed
    beside it. It then waits for its next turn: the race and the duel go from process to process.
    Whatever they leave out, each mode takes turns with eager after its first samples."""

    in_process = False

    def __init__(self, open_bench: Callable[[Config], RemoteBench]) -> None:
        self._open = open_bench
        self._benches: dict[str, RemoteBench] = {}
        self._running: RemoteBench | None = None

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        """Every mode is sampled, however slow its warm-up was: the report is a table of all."""
        answers: dict[str, Answer] = {}
        for config, artifact in visit.built:
            before = answers.get(config.id)
            if isinstance(before, ConfigFailure):
                continue
            one = self._visited(replace(visit.of((config, artifact)), hopeless=None))
            if isinstance(before, Sampled) and isinstance(one, Sampled):
                one = _with(before, one)
            if visit.first and config != _EAGER and isinstance(one, Sampled):
                beside = self._beside_eager(config, visit)
                one = replace(one, facts=FrozenMap({**one.facts, **beside}))
            answers[config.id] = one
        return tuple(answers.values())

    def _visited(self, visit: Visit) -> Answer:
        [(config, _)] = visit.built
        self._running = self._bench(config)
        [one] = self._running.measure(visit)
        self._running = None
        return one

    def _beside_eager(self, config: Config, visit: Visit) -> dict[str, Value]:
        """What both take in rounds, each first in every other one; empty where one fails."""
        one_sample = Visit(((_EAGER, None),), 1, limit_s=visit.limit_s)
        if _EAGER.id not in self._benches:  # its timing is known from an earlier run
            self._visited(replace(one_sample, first=True))
        rounds: list[tuple[float, float]] = []
        began = time.monotonic()
        while len(rounds) < ROUNDS and (
            len(rounds) < LEAST_ROUNDS or time.monotonic() - began < ROUNDS_S
        ):
            taken: dict[Config, float] = {}
            for one in (_EAGER, config) if len(rounds) % 2 else (config, _EAGER):
                answer = self._visited(one_sample.of((one, None)))
                if isinstance(answer, ConfigFailure):
                    return {}
                taken[one] = answer.reading.samples[0]
            rounds.append((taken[_EAGER], taken[config]))
        return {"beside_eager": json.dumps(rounds)}

    def _bench(self, config: Config) -> RemoteBench:
        if config.id not in self._benches:
            self._benches[config.id] = self._open(config)
        return self._benches[config.id]

    def forget(self, config: Config) -> None:
        """Eager stays at hand for the modes to come."""
        if config == _EAGER:
            return
        bench = self._benches.pop(config.id, None)
        if bench is not None:
            bench.close()

    def end_call(self) -> None:
        if self._running is not None:
            self._running.end_call()

    def close(self) -> None:
        for bench in self._benches.values():
            bench.close()
        self._benches.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _with(before: Sampled, later: Sampled) -> Sampled:
    seconds = dict(before.seconds)
    for phase, spent in later.seconds.items():
        seconds[phase] = seconds.get(phase, 0.0) + spent
    reading = joined([before.reading, later.reading])
    return Sampled(reading, FrozenMap(seconds), before.facts)
