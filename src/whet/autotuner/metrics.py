"""`KernelMetrics`: how fast a kernel ran, and how far that is from what the device can do."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

from whet.autotuner.configs import ArgumentError


@dataclass(frozen=True)
class KernelMetrics:
    """Timings of one config. `latency_ms` is the median of the samples; unknown values are None.

    Utilizations are percentages of the peak they were computed against.
    """

    latency_ms: float
    throughput_tflops: float | None = None
    bandwidth_gbps: float | None = None
    compute_utilization: float | None = None
    bandwidth_utilization: float | None = None
    mean_ms: float | None = None
    min_ms: float | None = None
    std_ms: float | None = None

    @classmethod
    def from_samples(cls, samples_ns: Sequence[float]) -> KernelMetrics:
        """Computes the metrics from samples. The standard deviation of a single sample is 0."""
        samples_ms = [ns / 1e6 for ns in samples_ns]
        return cls(
            latency_ms=statistics.median(samples_ms),
            mean_ms=statistics.fmean(samples_ms),
            min_ms=min(samples_ms),
            std_ms=statistics.stdev(samples_ms) if len(samples_ms) > 1 else 0.0,
        )

    def __str__(self) -> str:
        parts = [f"{self.latency_ms:.4g} ms"]
        if self.throughput_tflops is not None:
            parts.append(f"{self.throughput_tflops:.4g} TFLOPS{_share(self.compute_utilization)}")
        if self.bandwidth_gbps is not None:
            parts.append(f"{self.bandwidth_gbps:.4g} GB/s{_share(self.bandwidth_utilization)}")
        return ", ".join(parts)


def compute_gemm_metrics(
    M: int,  # noqa: N803  the mathematical names
    N: int,  # noqa: N803
    K: int,  # noqa: N803
    latency_ms: float,
    dtype_bytes: float = 2,
    output_bytes: float | None = None,
    peak_tflops: float | None = None,
    peak_bandwidth_gbps: float | None = None,
) -> KernelMetrics:
    """Metrics of C[M, N] = A[M, K] · B[K, N]: 2·M·N·K operations, each matrix moved once.

    `dtype_bytes` is the element size of A and B, `output_bytes` that of C (default: the same); for
    FP8 inputs with an FP16 result they are 1 and 2.
    """
    for name, value in (("M", M), ("N", N), ("K", K)):
        _require_count(name, value)
    _require_positive("dtype_bytes", dtype_bytes)
    if output_bytes is None:
        output_bytes = dtype_bytes
    _require_positive("output_bytes", output_bytes)
    return _rates(
        operations=2.0 * M * N * K,
        moved_bytes=dtype_bytes * (M * K + K * N) + output_bytes * M * N,
        latency_ms=latency_ms,
        peak_tflops=peak_tflops,
        peak_bandwidth_gbps=peak_bandwidth_gbps,
    )


def compute_elementwise_metrics(
    numel: int,
    latency_ms: float,
    bytes_per_element: float = 2,
    num_reads: int = 1,
    num_writes: int = 1,
    ops_per_element: float = 1,
    peak_tflops: float | None = None,
    peak_bandwidth_gbps: float | None = None,
) -> KernelMetrics:
    """Metrics of a kernel that reads `num_reads` and writes `num_writes` tensors of `numel`
    elements.

    A residual add, `out = x + y`, has two reads, one write and one operation per element.
    """
    _require_count("numel", numel)
    _require_positive("bytes_per_element", bytes_per_element)
    _require_count("num_reads", num_reads, least=0)
    _require_count("num_writes", num_writes, least=0)
    _require_positive("ops_per_element", ops_per_element, zero=True)
    return _rates(
        operations=float(ops_per_element) * numel,
        moved_bytes=float(bytes_per_element) * numel * (num_reads + num_writes),
        latency_ms=latency_ms,
        peak_tflops=peak_tflops,
        peak_bandwidth_gbps=peak_bandwidth_gbps,
    )


def _rates(
    operations: float,
    moved_bytes: float,
    latency_ms: float,
    peak_tflops: float | None,
    peak_bandwidth_gbps: float | None,
) -> KernelMetrics:
    _require_positive("latency_ms", latency_ms)
    seconds = latency_ms / 1e3
    tflops = operations / seconds / 1e12
    gbps = moved_bytes / seconds / 1e9
    return KernelMetrics(
        latency_ms=float(latency_ms),
        throughput_tflops=tflops,
        bandwidth_gbps=gbps,
        compute_utilization=_percent(tflops, "peak_tflops", peak_tflops),
        bandwidth_utilization=_percent(gbps, "peak_bandwidth_gbps", peak_bandwidth_gbps),
    )


def _percent(rate: float, name: str, peak: float | None) -> float | None:
    if peak is None:
        return None
    _require_positive(name, peak)
    return 100.0 * rate / peak


def _share(percent: float | None) -> str:
    return "" if percent is None else f" ({percent:.1f} % of peak)"


def _require_count(name: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < least:
        raise ArgumentError(f"{name} is {value!r}; give a whole number of at least {least}")


def _require_positive(name: str, value: object, zero: bool = False) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, Real)
        or not math.isfinite(value)
        or value < 0
        or (value == 0 and not zero)
    ):
        kind = "number of at least 0" if zero else "positive number"
        raise ArgumentError(f"{name} is {value!r}; give a finite {kind}")
