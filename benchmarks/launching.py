"""Launches as whet's timer takes them."""

from __future__ import annotations

from collections.abc import Callable


class Repeated:
    def __init__(self, launch: Callable[[], object]) -> None:
        self._launch = launch

    def repeat(self, n: int) -> None:
        for _ in range(n):
            self._launch()
