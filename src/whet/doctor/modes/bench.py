"""A bench with one process for each mode, of which one works at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Self

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.measure import RemoteBench
from whet.measure.bench.protocol import Answer, Sampled, Visit
from whet.measure.timer import joined


class ModeBench:
    """A process starts when its mode is first visited, so that no other one is compiled or timed
    beside it. It then waits for its next turn: the race and the duel go from process to process."""

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
            bench = self._bench(config)
            self._running = bench
            [one] = bench.measure(replace(visit.of((config, artifact)), hopeless=None))
            self._running = None
            if isinstance(before, Sampled) and isinstance(one, Sampled):
                one = _with(before, one)
            answers[config.id] = one
        return tuple(answers.values())

    def _bench(self, config: Config) -> RemoteBench:
        if config.id not in self._benches:
            self._benches[config.id] = self._open(config)
        return self._benches[config.id]

    def forget(self, config: Config) -> None:
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
