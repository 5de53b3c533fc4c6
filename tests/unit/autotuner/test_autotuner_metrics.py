import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from whet.autotuner.metrics import (
    KernelMetrics,
    compute_elementwise_metrics,
    compute_gemm_metrics,
)
from whet.core.errors import UsageError


def test_samples_give_median_mean_minimum_and_deviation_in_milliseconds() -> None:
    metrics = KernelMetrics.from_samples([1e6, 2e6, 6e6])
    assert (metrics.latency_ms, metrics.mean_ms, metrics.min_ms) == (2.0, 3.0, 1.0)
    assert metrics.std_ms == pytest.approx(7**0.5)


def test_one_sample_has_no_deviation() -> None:
    assert KernelMetrics.from_samples([5e6]).std_ms == 0.0


def test_rates_that_nobody_computed_are_none() -> None:
    metrics = KernelMetrics.from_samples([1e6])
    assert metrics.throughput_tflops is None
    assert metrics.bandwidth_gbps is None
    assert metrics.bandwidth_utilization is None


def test_metrics_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        KernelMetrics(1.0).latency_ms = 2.0  # type: ignore[misc]


def test_metrics_print_what_is_known() -> None:
    assert str(KernelMetrics(0.45)) == "0.45 ms"
    assert str(compute_gemm_metrics(1000, 1000, 1000, 1.0, peak_tflops=4.0)) == (
        "1 ms, 2 TFLOPS (50.0 % of peak), 6 GB/s"
    )


def test_a_gemm_counts_two_operations_a_product_and_each_matrix_once() -> None:
    metrics = compute_gemm_metrics(10, 20, 30, latency_ms=1.0)
    assert metrics.throughput_tflops == pytest.approx(2 * 10 * 20 * 30 / 1e-3 / 1e12)
    assert metrics.bandwidth_gbps == pytest.approx(2 * (10 * 30 + 30 * 20 + 10 * 20) / 1e-3 / 1e9)
    assert metrics.latency_ms == 1.0


def test_a_gemm_may_write_elements_of_another_size_than_it_reads() -> None:
    metrics = compute_gemm_metrics(10, 20, 30, 1.0, dtype_bytes=1, output_bytes=4)
    assert metrics.bandwidth_gbps == pytest.approx((10 * 30 + 30 * 20 + 4 * 10 * 20) / 1e-3 / 1e9)


def test_an_elementwise_kernel_counts_what_it_reads_and_writes() -> None:
    metrics = compute_elementwise_metrics(
        1000, 0.5, bytes_per_element=4, num_reads=2, num_writes=1, ops_per_element=3
    )
    assert metrics.bandwidth_gbps == pytest.approx(1000 * 4 * 3 / 0.5e-3 / 1e9)
    assert metrics.throughput_tflops == pytest.approx(1000 * 3 / 0.5e-3 / 1e12)


def test_utilization_is_the_percentage_of_the_peak_that_was_given() -> None:
    metrics = compute_elementwise_metrics(
        10**6, 1.0, bytes_per_element=2, peak_bandwidth_gbps=16.0, peak_tflops=0.002
    )
    assert metrics.bandwidth_utilization == pytest.approx(25.0)
    assert metrics.compute_utilization == pytest.approx(50.0)


def test_without_a_peak_there_is_no_utilization() -> None:
    metrics = compute_gemm_metrics(8, 8, 8, 1.0)
    assert metrics.compute_utilization is None
    assert metrics.bandwidth_utilization is None


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: compute_gemm_metrics(0, 8, 8, 1.0), "M is 0"),
        (lambda: compute_gemm_metrics(8, -1, 8, 1.0), "N is -1"),
        (lambda: compute_gemm_metrics(8, 8, 1.5, 1.0), "K is 1.5"),  # type: ignore[arg-type]
        (lambda: compute_gemm_metrics(8, 8, 8, 0.0), "latency_ms is 0"),
        (lambda: compute_gemm_metrics(8, 8, 8, float("nan")), "latency_ms is nan"),
        (lambda: compute_gemm_metrics(8, 8, 8, 1.0, dtype_bytes=0), "dtype_bytes is 0"),
        (lambda: compute_gemm_metrics(8, 8, 8, 1.0, peak_tflops=0), "peak_tflops is 0"),
        (lambda: compute_elementwise_metrics(0, 1.0), "numel is 0"),
        (lambda: compute_elementwise_metrics(8, 1.0, num_reads=-1), "num_reads is -1"),
        (lambda: compute_elementwise_metrics(8, 1.0, ops_per_element=-1), "ops_per_element is -1"),
    ],
)
def test_a_number_that_cannot_be_is_refused_by_name(call: Callable[[], Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        call()
    with pytest.raises(ValueError, match=named):
        call()
