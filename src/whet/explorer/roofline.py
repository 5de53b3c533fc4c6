"""How fast a workload could be: where its operations and bytes are known, and its device's peaks.

Nothing in a store says how much a kernel computes. A matrix product is recognised by its name and
by sizes M, N and K in its key; of anything else nothing is claimed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.core.workload import Workload

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
        return {
            "flops": self.flops,
            "bytes": self.bytes,
            "peak_flops": self.peak_flops,
            "peak_bytes_s": self.peak_bytes_s,
            "roofline_ns": self.ns,
        }


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
