"""The ask/tell contract, and the strategies by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from whet.core.config import Config
from whet.core.trial import Trial

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
