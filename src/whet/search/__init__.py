"""Ask/tell strategies, one file each: pure, with their own generator."""

from whet.search.registry import STRATEGIES, check_search, make_strategy, takes_prior
from whet.search.strategy import Sparing, Strategy

__all__ = ["STRATEGIES", "Sparing", "Strategy", "check_search", "make_strategy", "takes_prior"]
