"""Ask/tell strategies, one file each: pure, with their own generator.

Names are imported when first used: what is stored is not searched for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.core.lazy import lazily

if TYPE_CHECKING:
    from whet.search.registry import STRATEGIES, check_search, make_strategy, takes_prior
    from whet.search.strategy import Sparing, Strategy

_HOMES = {
    "STRATEGIES": "registry",
    "Sparing": "strategy",
    "Strategy": "strategy",
    "check_search": "registry",
    "make_strategy": "registry",
    "takes_prior": "registry",
}

__all__ = ["STRATEGIES", "Sparing", "Strategy", "check_search", "make_strategy", "takes_prior"]

__getattr__ = lazily(__name__, _HOMES)
