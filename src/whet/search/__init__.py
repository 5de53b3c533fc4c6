"""Ask/tell strategies, one file each: pure, with their own generator. Here is what they have to be,
and the strategies by name. A new one is one new file and one line here, or an entry point of a
package.

Why it is so: docs/decisions/searching.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from whet.core.errors import UsageError, did_you_mean
from whet.core.plugins import Plugin, find_plugin, plugin_names

if TYPE_CHECKING:
    from whet.core.config import Config
    from whet.core.context import TuningContext
    from whet.core.space import Space
    from whet.core.trial import Trial
    from whet.learn.prior import Prior

# Without a budget, a space of up to so many configs is raced whole; a larger one is searched.
RACED_WHOLE = 1024


@runtime_checkable
class Sparing(Protocol):
    """A strategy that stops before it has tried everything. While others are being built, that it
    asks for none says only that it waits for these."""

    @property
    def enough(self) -> bool:
        """Whether some configs are left, and neither these nor those being built are expected to
        be worth their builds. It then asks for no more."""


@runtime_checkable
class Strategy(Protocol):
    """Says what to try next. Works the same on a live device and on a recorded table.

    Obligations, which `whet.testing.strategy_kit.StrategyContract` checks:

    - It asks only for valid configs of its space, and never twice for the same one; nor for one
      it was told of before it asked, as happens with what the store already knows.
    - It sees every outcome, failures included, in any order, some late and some never: it must be
      able to ask again before it was told about what it asked for.
    - With the same seed and the same calls it asks for the same configs. Randomness comes from
      its own generator; the global ones are neither used nor seeded.
    - It reads no clock, touches no file and prints nothing.
    """

    @property
    def name(self) -> str:
        """What the strategy is called on the command line and in the store."""

    @property
    def guided(self) -> bool:
        """Whether its next choice depends on the outcomes so far: it is then asked for no more at
        a time than can be built at once. One that does not say so is taken for one that is not."""

    def ask(self, n: int) -> list[Config]:
        """At most `n` configs, best guess first; fewer when the space runs out, [] when it has."""

    def tell(self, trials: Sequence[Trial]) -> None:
        """Outcomes, also of configs this strategy never asked for. A later trial of a config
        replaces the earlier."""


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
    "llm": "whet.search.llm:Llm",
}

# Those that need nothing but a space; `llm` also needs a model to ask.
STRATEGIES = tuple(name for name in _CLASSES if name != "llm")

_NEEDED = ("name", "ask", "tell")


class _Unsaid:
    """A strategy of somebody's own that does not say whether it is guided."""

    guided = False

    def __init__(self, strategy: Strategy) -> None:
        self.name, self.ask, self.tell = strategy.name, strategy.ask, strategy.tell


def check_search(search: str | Strategy) -> None:
    """Raises `UsageError` for what is neither a strategy nor the name of one."""
    if isinstance(search, str):
        if search not in _CLASSES:
            _plugin(search)
    elif not _complete(search):
        raise UsageError(
            f"search is {search!r}, which has no name, ask and tell; "
            f"give a Strategy or one of {', '.join(STRATEGIES)}"
        )


def takes_prior(search: str) -> bool:
    """Whether the strategy of that name can learn from other workloads."""
    return _takes(search, "transfer")


def takes_context(search: str) -> bool:
    """Whether the strategy of that name wants to know more than outcomes."""
    return _takes(search, "context")


def _takes(search: str, name: str) -> bool:
    made = _plugin(search).part if search not in _CLASSES else _class(search)
    return name in _parameters(made)


def make_strategy(
    search: str | Strategy,
    space: Space,
    seed: int = 0,
    transfer: Prior | None = None,
    *,
    whole: bool | None = None,
    context: TuningContext | None = None,
) -> Strategy:
    """The strategy of that name for `space`; an instance is used as it is.

    `transfer` is what is known beforehand, `whole` says whether everything will be tried, None
    where that is open, and `context` is what is known of the kernel; a strategy that has no use for
    them goes without.
    """
    check_search(search)
    if not isinstance(search, str):
        return _with_guided(search)
    plugin = None if search in _CLASSES else _plugin(search)
    made = _class(search) if plugin is None else plugin.part
    offered = {"transfer": transfer, "whole": whole, "context": context}
    taken = _parameters(made)
    given = {name: value for name, value in offered.items() if value is not None and name in taken}
    if plugin is None:
        strategy: Strategy = made(space, seed, **given)
        return strategy
    strategy = plugin.make(space, seed, **given)
    if not _complete(strategy):
        raise plugin.unfit(f"it made {type(strategy).__name__!r}, which has no name, ask and tell")
    return _with_guided(strategy)


def _class(search: str) -> Callable[..., Any]:
    module, _, name = _CLASSES[search].partition(":")
    made: Callable[..., Any] = getattr(import_module(module), name)
    return made


def _plugin(search: str) -> Plugin:
    found = find_plugin("strategy", search)
    if found is None:
        names = (*STRATEGIES, *plugin_names("strategy"))
        raise UsageError(f"unknown search '{search}'{did_you_mean(search, names)}")
    return found


def _parameters(made: Callable[..., Any]) -> Iterable[str]:
    try:
        return signature(made).parameters
    except (TypeError, ValueError):
        return ()


def _complete(strategy: Any) -> bool:
    return all(hasattr(strategy, one) for one in _NEEDED)


def _with_guided(strategy: Strategy) -> Strategy:
    return strategy if hasattr(strategy, "guided") else _Unsaid(strategy)
