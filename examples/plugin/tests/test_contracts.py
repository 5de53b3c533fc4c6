"""Every part, held to what whet expects of its kind."""

from __future__ import annotations

from pathlib import Path

from whet_example.command import command
from whet_example.cpu_seconds import CpuSeconds
from whet_example.csv_format import CSV
from whet_example.nearby import Nearby
from whet_example.team import TeamStore

from whet.core.space import Space
from whet.engine import Target
from whet.interop import Format
from whet.measure import Runnable, Timer
from whet.search import Strategy
from whet.store import Store
from whet.testing.format_kit import FormatContract
from whet.testing.store_kit import StoreContract
from whet.testing.strategy_kit import StrategyContract
from whet.testing.target_kit import TargetContract
from whet.testing.timer_kit import TimerContract


class TestNearby(StrategyContract):
    def make(self, space: Space, seed: int) -> Strategy:
        return Nearby(space, seed)


class TestTeamStore(StoreContract):
    def make_store(self, folder: Path) -> Store:
        return TeamStore(f"team://{folder}")


class TestCommand(TargetContract):
    def make_target(self) -> Target:
        return command("sleep {seconds=0.02,0.001}")


class Spinning:
    """Busy for so long."""

    def __init__(self, ns: float) -> None:
        self._steps = round(ns / 20)

    def repeat(self, n: int) -> None:
        for _ in range(n):
            for _ in range(self._steps):
                pass


class TestCpuSeconds(TimerContract):
    def make(self) -> Timer:
        return CpuSeconds()

    def kernel(self, ns: float) -> Runnable:
        return Spinning(ns)


class TestCsv(FormatContract):
    def make_format(self) -> Format:
        return CSV
