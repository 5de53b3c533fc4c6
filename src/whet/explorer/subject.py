"""`Subject`: one workload to look at, whether a store or a table has it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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

_PRODUCT = re.compile(r"(^|[^a-z])(matmul|gemm|mm|dot|matrix_product|product)([^a-z]|$)")
_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8": 1,
    "int8": 1,
    "uint8": 1,
    "fp64": 8,
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8": 1,
}


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


def line_json(id: str, workload: Workload, origin: OriginName, **known: Any) -> dict[str, Any]:
    """A line of the list of workloads; what is not `known` is as of one that was never tuned."""
    return {
        "id": id,
        **workload_json(workload),
        "origin": origin,
        "best": None,
        "first": None,
        "speedup": None,
        "paired": False,
        "next": "",
        "typical_ns": None,
        "equals": 0,
        "trials": {},
        "configs": 0,
        "rows": 0,
        "space_size": None,
        "space_product": None,
        "cost_s": 0.0,
        "wall": {},
        "work": {},
        "exact": True,
        **Roofline.of(workload).to_json(),
        "first_seen": None,
        "last_seen": None,
        **known,
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


@dataclass(frozen=True)
class Peaks:
    """Dense, as the maker documents them: FLOP/s by the bytes of an operand, and bytes/s."""

    flops: Mapping[int, float]
    bytes_s: float


# From the makers' data sheets; without sparsity, at boost clocks. The first that the name holds.
_PEAKS = (
    ("H200", Peaks({1: 1979e12, 2: 989e12, 4: 494e12, 8: 67e12}, 4.8e12)),
    ("H100 PCIe", Peaks({1: 1513e12, 2: 756e12, 4: 378e12, 8: 51e12}, 2.0e12)),
    ("H100", Peaks({1: 1979e12, 2: 989e12, 4: 494e12, 8: 67e12}, 3.35e12)),
    ("B200", Peaks({1: 4500e12, 2: 2250e12, 4: 1100e12, 8: 40e12}, 8.0e12)),
    ("A100-SXM4-80GB", Peaks({1: 624e12, 2: 312e12, 4: 156e12, 8: 19.5e12}, 2.039e12)),
    ("A100", Peaks({1: 624e12, 2: 312e12, 4: 156e12, 8: 19.5e12}, 1.555e12)),
    ("L40S", Peaks({1: 733e12, 2: 362e12, 4: 183e12}, 0.864e12)),
    ("MI300X", Peaks({1: 2615e12, 2: 1307e12, 4: 654e12, 8: 163e12}, 5.3e12)),
)


@dataclass(frozen=True)
class Roofline:
    """None for whatever is not known."""

    flops: float | None = None
    bytes: float | None = None
    peak_flops: float | None = None
    peak_bytes_s: float | None = None

    @classmethod
    def of(cls, workload: Workload) -> Roofline:
        sizes = {str(name).upper(): value for name, value in workload.key.items()}
        if not _PRODUCT.search(workload.kernel.lower()):
            return cls()
        if set(sizes) & set("MNK") != set("MNK") and "N" in sizes and len(workload.key) == 1:
            sizes = dict.fromkeys("MNK", sizes["N"])
        dimensions = [sizes.get(name) for name in "MNK"]
        if not all(type(size) is int and size > 0 for size in dimensions):
            return cls()
        m, n, k = (int(size) for size in dimensions if size is not None)
        width = _operand_bytes(workload.key)
        moved = None if width is None else float(width * (m * k + k * n + m * n))
        peaks = _peaks_of(workload.device.name)
        peak_flops = None if peaks is None or width is None else peaks.flops.get(width)
        peak_bytes = None if peaks is None else peaks.bytes_s
        return cls(2.0 * m * n * k, moved, peak_flops, peak_bytes)

    @property
    def ns(self) -> float | None:
        """The shortest time in which the device can compute and move that much."""
        bounds = [
            amount / peak * 1e9
            for amount, peak in ((self.flops, self.peak_flops), (self.bytes, self.peak_bytes_s))
            if amount is not None and peak is not None
        ]
        return max(bounds) if len(bounds) == 2 else None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "roofline_ns": self.ns}


def _operand_bytes(key: Mapping[str, Any]) -> int | None:
    """Of one element, where all that the key says of data types agrees."""
    found = {
        size
        for name, value in key.items()
        if "dtype" in name.lower() and (size := _bytes_of(str(value))) is not None
    }
    return found.pop() if len(found) == 1 else None


def _bytes_of(dtype: str) -> int | None:
    name = dtype.lower().removeprefix("torch.").lstrip("*")
    return next((size for known, size in _BYTES.items() if name.startswith(known)), None)


def _peaks_of(device: str) -> Peaks | None:
    return next((peaks for name, peaks in _PEAKS if name.lower() in device.lower()), None)
