"""`Subject`: one workload to look at, whether a store or a table has it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from whet.core.config import Config
from whet.core.errors import WhetError
from whet.core.run import Run
from whet.core.timeline import Timeline
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.explorer.columns import Remarkable, TrialColumns
from whet.replay.table import Table, TableWorkload

OriginName = Literal["store", "table", "bundle"]


class NotThereError(WhetError):
    """What was asked for does not exist; the message says what does."""


class AbsentError(WhetError):
    """What was asked for cannot be had of this workload; the message is a sentence for the page."""


@dataclass(frozen=True)
class ColumnReading:
    """The columns as far as they have been read. `complete` says that nothing more is stored."""

    columns: TrialColumns
    total: int
    complete: bool
    epoch: str
    pointed: Remarkable


@dataclass(frozen=True, eq=False)
class Recorded:
    """A table and the workload of it that is looked at. Compared by identity, so that what was
    simulated on it can be kept with it."""

    table: Table
    workload: TableWorkload


class Subject(ABC):
    id: str
    workload: Workload
    origin: OriginName

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """One line of the list of workloads."""

    @abstractmethod
    def read(self, wanted: int | None = None) -> ColumnReading:
        """All rows; with `wanted`, as many as are there within a moment, once there are more than
        that."""

    @abstractmethod
    def encoded(self, first: int) -> list[bytes]:
        """What the page gets of the rows from `first` on."""

    @abstractmethod
    def trial(self, row: int) -> Trial | None:
        """None for a config that was never tried."""

    @abstractmethod
    def recorded(self) -> Recorded:
        """What a strategy can be let loose on; `AbsentError` where that cannot be."""

    @abstractmethod
    def all_trials(self) -> Sequence[Trial | None]:
        """By row, superseded ones included; None for a config that was never tried."""

    def stages(self, trial: Trial) -> Mapping[str, str]:
        """The intermediate code that was kept of a trial, stage by stage."""
        return {}

    def journey(self) -> bytes | None:
        """The report of a model's way to machine code, if one was kept."""
        return None

    def runs(self) -> Sequence[Run]:
        """Newest first."""
        return ()

    def timeline(self, run_id: str) -> Timeline | None:
        return None


def best_json(trial: Trial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    interval = None if trial.timing is None else trial.timing.interval_ns
    low, high = (None, None) if interval is None else interval
    return {
        "config": config_json(trial.config),
        "config_id": trial.config.id,
        "ns": trial.median_ns,
        "low_ns": low,
        "high_ns": high,
        "samples": 0 if trial.timing is None else len(trial.timing.samples),
    }


def config_json(config: Mapping[str, Any]) -> dict[str, Any]:
    return dict(config)


def first_json(config: Config | None, median_ns: float | None) -> dict[str, Any] | None:
    return None if config is None else {"config": config_json(config), "ns": median_ns}


def workload_json(workload: Workload) -> dict[str, Any]:
    """What tells a workload from others."""
    device = workload.device
    return {
        "kernel": workload.kernel,
        "key": dict(workload.key),
        "device": device.name,
        "arch": device.architecture,
        "driver": device.driver,
        "toolchain": dict(workload.toolchain),
        "fingerprint": workload.fingerprint,
        "source_where": next(iter(workload.origin.places), ""),
    }


def product_text(sizes: Sequence[int], count: int | None) -> str | None:
    """`4×4×3 = 48`; None where the space is not that product."""
    varied = [size for size in sizes if size > 1]
    product = 1
    for size in varied:
        product *= size
    if not varied or product != count:
        return None
    return f"{'×'.join(map(str, varied))} = {product:,}"
