"""Visits to a bench, of one config or of several, in few words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.measure.bench.protocol import Answer, Bench, Sampled, Visit

LIMIT_S = 20.0


def first(
    bench: Bench, config: Config, samples: int, artifact: Any = None, limit_s: float = LIMIT_S
) -> Sampled:
    [one] = bench.measure(Visit(((config, artifact),), samples, first=True, limit_s=limit_s))
    return sampled(one)


def further(bench: Bench, config: Config, samples: int) -> Sampled:
    [one] = bench.measure(Visit(((config, None),), samples, limit_s=LIMIT_S))
    return sampled(one)


def round_of(bench: Bench, configs: Iterable[Config]) -> dict[Config, Answer]:
    """One sample of each, or as many as it is named for."""
    order = list(configs)
    visit = Visit(tuple((config, None) for config in order), 1, limit_s=LIMIT_S)
    return dict(zip(dict.fromkeys(order), bench.measure(visit), strict=True))


def failure_of(bench: Bench, config: Config, limit_s: float = LIMIT_S) -> ConfigFailure:
    [one] = bench.measure(Visit(((config, None),), 2, first=True, limit_s=limit_s))
    assert isinstance(one, ConfigFailure)
    return one


def sampled(answer: Answer) -> Sampled:
    assert isinstance(answer, Sampled), answer
    return answer
