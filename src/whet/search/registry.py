"""Strategies by name. A new one is one new file and one line here."""

from __future__ import annotations

from importlib import import_module

from whet.core.errors import UsageError, did_you_mean
from whet.core.space import Space
from whet.search.strategy import Strategy

# Imported when asked for: some strategies bring heavy libraries with them.
_CLASSES = {
    "auto": "whet.search.auto:Auto",
    "grid": "whet.search.grid:Grid",
    "random": "whet.search.random:Random",
}

STRATEGIES = tuple(_CLASSES)


def make_strategy(search: str | Strategy, space: Space, seed: int = 0) -> Strategy:
    """The strategy of that name for `space`; an instance is taken as it is."""
    if not isinstance(search, str):
        if isinstance(search, Strategy):
            return search
        raise UsageError(
            f"search is {search!r}, which has no name, ask and tell; "
            f"give a Strategy or one of {', '.join(STRATEGIES)}"
        )
    if search not in _CLASSES:
        raise UsageError(f"unknown search '{search}'{did_you_mean(search, STRATEGIES)}")
    module, _, name = _CLASSES[search].partition(":")
    strategy: Strategy = getattr(import_module(module), name)(space, seed)
    return strategy
