"""Strategies by name. A new one is one new file and one line here."""

from __future__ import annotations

from importlib import import_module
from inspect import signature

from whet.core.errors import UsageError, did_you_mean
from whet.core.space import Space
from whet.learn.prior import Prior
from whet.search.strategy import Strategy

# Imported when asked for: some strategies bring heavy libraries with them.
_CLASSES = {
    "auto": "whet.search.auto:Auto",
    "grid": "whet.search.unguided:Grid",
    "random": "whet.search.unguided:Random",
    "coordinate": "whet.search.coordinate:Coordinate",
    "anneal": "whet.search.anneal:Anneal",
    "genetic": "whet.search.genetic:Genetic",
    "evolution": "whet.search.evolution:Evolution",
    "gp": "whet.search.gp:GaussianProcess",
    "tpe": "whet.search.tpe:Tpe",
    "forest": "whet.search.forest:Forest",
    "evolve-model": "whet.search.evolve_model:EvolveModel",
}

STRATEGIES = tuple(_CLASSES)

_NEEDED = ("name", "ask", "tell")


class _Unsaid:
    """A strategy of somebody's own that does not say whether it is guided."""

    guided = False

    def __init__(self, strategy: Strategy) -> None:
        self.name, self.ask, self.tell = strategy.name, strategy.ask, strategy.tell


def check_search(search: str | Strategy) -> None:
    """Raises `UsageError` for what is neither a strategy nor the name of one."""
    if isinstance(search, str) and search not in _CLASSES:
        raise UsageError(f"unknown search '{search}'{did_you_mean(search, STRATEGIES)}")
    if not isinstance(search, str) and not all(hasattr(search, one) for one in _NEEDED):
        raise UsageError(
            f"search is {search!r}, which has no name, ask and tell; "
            f"give a Strategy or one of {', '.join(STRATEGIES)}"
        )


def make_strategy(
    search: str | Strategy,
    space: Space,
    seed: int = 0,
    transfer: Prior | None = None,
    *,
    whole: bool | None = None,
) -> Strategy:
    """The strategy of that name for `space`; an instance is used as it is.

    `transfer` is what is known beforehand, and `whole` says whether everything will be tried, None
    where that is open; a strategy that has no use for them goes without.
    """
    check_search(search)
    if not isinstance(search, str):
        return search if hasattr(search, "guided") else _Unsaid(search)
    module, _, name = _CLASSES[search].partition(":")
    made = getattr(import_module(module), name)
    offered = {"transfer": transfer, "whole": whole}
    taken = signature(made).parameters
    given = {name: value for name, value in offered.items() if value is not None and name in taken}
    strategy: Strategy = made(space, seed, **given)
    return strategy
