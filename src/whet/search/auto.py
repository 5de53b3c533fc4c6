"""What to use when nobody says.

A space that is raced whole is taken in a random order after the author's first config: there the
order decides only how good the best so far is at any time, and a random one beats the author's,
in which neighbours are alike. A larger one is searched by Gaussian processes (`gp.py`), and
only then are these imported.
"""

from __future__ import annotations

from whet.core.space import Space
from whet.learn.prior import Prior
from whet.search import RACED_WHOLE, Strategy
from whet.search.unguided import Random


class Auto:
    name = "auto"

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        *,
        transfer: Prior | None = None,
        whole: bool | None = None,
    ) -> None:
        strategy: Strategy
        if whole is None:
            whole = space.is_small(RACED_WHOLE)
        if transfer is None and whole and space.is_small(RACED_WHOLE):
            strategy = Random(space, seed)
        else:
            from whet.search.gp import TwoViews

            strategy = TwoViews(space, seed, transfer=transfer)
        self.guided, self.ask, self.tell = strategy.guided, strategy.ask, strategy.tell
