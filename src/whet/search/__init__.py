"""Ask/tell strategies, one file each: pure, with their own generator."""

from whet.search.registry import STRATEGIES, make_strategy
from whet.search.strategy import Strategy

__all__ = ["STRATEGIES", "Strategy", "make_strategy"]
