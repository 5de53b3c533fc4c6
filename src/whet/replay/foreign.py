"""What the readers of other people's tables share.

These are read as far as they are sound: a tuner that is killed leaves its file without an end.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from whet.core.config import Config
from whet.core.errors import SpaceError
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.workload import Device
from whet.replay.decoding import TableError
from whet.replay.files import FileContent
from whet.replay.table import TICKS_PER_S, Build, Table, TableOrigin, TableWorkload, first_line
from whet.replay.visits import LONGEST_NS, Visits

NS_PER_MS = 1_000_000

# What Kernel Tuner once wrote for a config that failed.
FAILED_TIME = 1e20


class Unusable(Exception):
    """A result from which no config can be read."""


class Rows:
    """Config after config, in arrays: there may be hundreds of thousands with 32 samples each."""

    def __init__(self, ns_per_unit: int = NS_PER_MS) -> None:
        self.ns_per_unit = ns_per_unit
        self.configs: dict[Config, None] = {}
        self.repeated = 0
        self.unusable = 0
        self.date = ""
        self._builds: list[Build] = []
        self._statuses: list[Status | None] = []
        self._flat = array("q")
        self._sizes = array("q")
        self._counts = array("q")
        self._spent: dict[str, array[int]] = {}
        self._errors: dict[str, str] = {}

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Counts a result that turns out to be none, and goes on."""
        try:
            yield
        except Unusable:
            self.unusable += 1

    def add(
        self,
        config: Config,
        status: Status,
        samples: Iterable[Any],
        build: Any,
        spent: Mapping[str, Any],
        error: str = "",
        when: Any = "",
    ) -> None:
        if config in self.configs:
            self.repeated += 1
            return
        ns = [round(sample * self.ns_per_unit) for sample in samples if is_time(sample)]
        kept = [sample for sample in ns if 0 < sample <= LONGEST_NS] if status.measured else []
        if status.measured and not kept:
            status, error = Status.RUN_ERROR, "it has no usable time"
        at = len(self.configs)
        self.configs[config] = None
        self._statuses.append(status)
        self._flat.extend(kept)
        self._counts.append(1 if kept else 0)
        if kept:
            self._sizes.append(len(kept))
        if error:
            self._errors[str(at)] = first_line(error)
        for phase, amount in spent.items():
            column = self._spent.setdefault(phase, array("q", [-1]) * at)
            column.append(self._ticks(amount))
        unbuilt = status in (Status.BUILD_ERROR, Status.CONSTRAINT)
        ticks = self._ticks(build)
        self._builds.append(
            Build(
                status=status if unbuilt else Status.OK,
                seconds=None if ticks < 0 else ticks / TICKS_PER_S,
                error=error if unbuilt else "",
            )
        )
        if isinstance(when, str):
            self.date = max(self.date, when[:10])

    def table(self, kernel: str, device: str, key: Mapping[str, Any], source: str) -> Table:
        workload = TableWorkload(
            key=FrozenMap(key),
            statuses=tuple(self._statuses),
            visits=Visits(*(np.array(one) for one in (self._flat, self._sizes, self._counts))),
            spent=FrozenMap({phase: tuple(ticks) for phase, ticks in self._spent.items()}),
            errors=FrozenMap(self._errors),
        )
        return Table(
            kernel=kernel,
            fingerprint="",
            device=Device(device, _vendor(device), architecture=""),
            configs=tuple(self.configs),
            builds=tuple(self._builds),
            workloads=(workload,),
            origin=TableOrigin(date=self.date, source=source),
        )

    def _ticks(self, amount: Any) -> int:
        known = is_number(amount) and 0 <= amount * self.ns_per_unit <= LONGEST_NS
        return round(amount * self.ns_per_unit * TICKS_PER_S / 1e9) if known else -1


def read_config(values: Mapping[str, Any], names: Iterable[str]) -> Config:
    try:
        return Config({name: values[name] for name in names})
    except (KeyError, TypeError, SpaceError):
        raise Unusable from None


def named_by_file(file: FileContent) -> tuple[str, str]:
    """`convolution-RTX_3090.t4.json.gz` is of the convolution, on an RTX 3090."""
    kernel, _, device = file.path.name.partition(".")[0].partition("-")
    return kernel, device.replace("_", " ") or "unknown"


def reading_notes(rows: Rows, whole: bool) -> tuple[str, ...]:
    notes = []
    if not whole:
        notes.append(
            f"the file is truncated or damaged; read its first {len(rows.configs)} configs"
        )
    if rows.unusable:
        notes.append(f"skipped because they are not valid: {rows.unusable}")
    if rows.repeated:
        notes.append(f"skipped because their config was already listed: {rows.repeated}")
    return tuple(notes)


def refuse_empty(rows: Rows, file: FileContent, member: str) -> None:
    if not rows.configs:
        raise TableError(f"{file.path} has no complete result in '{member}'")


def is_time(value: Any) -> bool:
    return is_number(value) and value > 0


def is_number(value: Any) -> bool:
    """Of a size that can be reckoned with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e200


def _vendor(device: str) -> str:
    lowered = device.lower()
    if any(word in lowered for word in ("nvidia", "geforce", "tesla", "quadro")):
        return "nvidia"
    return "amd" if any(word in lowered for word in ("amd", "radeon", "instinct")) else ""
