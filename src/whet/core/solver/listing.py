"""A space given as a list of configs, whose parameters are read off the configs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from whet.core.cached import cached_property
from whet.core.config import Config, Value
from whet.core.space.parameter import Parameter, infer, value_key

if TYPE_CHECKING:
    import numpy.typing as npt

    from whet.core.solver.constraint import Constraint

_ABSENT = -1
_UNLISTED = -2


class Listing:
    """The listed configs that satisfy the constraints, each once, in the order given."""

    def __init__(
        self,
        configs: Sequence[Config],
        parameters: Sequence[Parameter],
        constraints: Sequence[Constraint],
    ) -> None:
        self._parameters = parameters
        self._constraints = constraints
        self._listed = dict.fromkeys(configs)
        self._valid = {config: None for config in self._listed if not self._broken(config)}
        self._configs = list(self._valid)
        self.count = len(self._valid)

    @cached_property
    def optional(self) -> frozenset[str]:
        """Parameters that some of the configs do without."""
        names = (parameter.name for parameter in self._parameters)
        return frozenset(
            name for name in names if not all(name in config for config in self._listed)
        )

    @property
    def identity(self) -> list[str]:
        return sorted(config.json for config in self._valid)

    def __iter__(self) -> Iterator[Config]:
        return iter(self._configs)

    def at_most(self, limit: int) -> bool:
        return self.count <= limit

    def sample(self, rng: np.random.Generator, n: int, *, replace: bool) -> list[Config]:
        if replace and self.count:
            return [self._configs[at] for at in rng.integers(self.count, size=n)]
        return [self._configs[at] for at in rng.permutation(self.count)[:n]]

    def explain(self, config: Config) -> str | None:
        if config in self._valid:
            return None
        if config in self._listed:
            return f"breaks the constraint '{self._broken(config)}'"
        for parameter in self._parameters:
            if parameter.name in config and not parameter.offers(config[parameter.name]):
                return parameter.refusal(config[parameter.name])
            if parameter.name not in config and parameter.name not in self.optional:
                return f"parameter '{parameter.name}' is missing"
        return f"this combination is not among the {len(self._listed)} listed configs"

    def neighbours(self, config: Config) -> list[Config]:
        differing = (self._codes != self._code(config)).sum(axis=1)
        return [self._configs[at] for at in np.flatnonzero(differing == 1)]

    @cached_property
    def _codes(self) -> npt.NDArray[np.int64]:
        rows = [self._code(config) for config in self._configs]
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(self._parameters))

    def _code(self, config: Config) -> list[int]:
        """For each parameter the position of its value, so that rows can be compared at once."""
        codes = []
        for parameter in self._parameters:
            if parameter.name not in config:
                codes.append(_ABSENT)
            elif parameter.offers(config[parameter.name]):
                codes.append(parameter.position(config[parameter.name]))
            else:
                codes.append(_UNLISTED)
        return codes

    def _broken(self, config: Config) -> str | None:
        texts = (one.text for one in self._constraints if not one.holds_for(config))
        return next(texts, None)


def read_parameters(configs: Sequence[Config]) -> tuple[Parameter, ...]:
    """The names in the order of their first mention, each with every value it is given."""
    values: dict[str, dict[int | str, Value]] = {}
    for config in configs:
        for name, value in config.items():
            values.setdefault(name, {}).setdefault(value_key(value), value)
    return tuple(infer(name, list(listed.values())) for name, listed in values.items())
