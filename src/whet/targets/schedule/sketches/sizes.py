"""Numbers that a rule offers for a loop: those that divide it, so that every block is whole."""

from __future__ import annotations

from collections.abc import Sequence

# A prime extent is walked in pieces of which the last is smaller, and peeled off.
_LEAST = 4


def offered(extent: int, wanted: Sequence[int]) -> list[int]:
    """The wanted sizes that divide the extent, in their order. Where there is none: the extent
    itself if it is small, else its divisors nearest to the first wanted."""
    found = [size for size in wanted if size <= extent and extent % size == 0]
    if found:
        return found
    if extent <= max(wanted):
        return [extent]
    divisors = [d for d in range(1, max(wanted) + 1) if extent % d == 0]
    divisors.sort(key=lambda d: max(d, wanted[0]) / min(d, wanted[0]))
    return divisors[:3]


def awkward(extent: int, wanted: Sequence[int]) -> bool:
    """Whether no size that is worth having divides it."""
    return extent > max(wanted) and max(offered(extent, wanted)) < min(_LEAST, min(wanted))
