"""The class API on a real device."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from whet.autotuner import KernelMetrics, TritonAutoTuner
from whet.core.errors import UsageError

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def test_the_documented_example_runs(torch: Any, tmp_path: Path) -> None:
    def dummy_kernel(x: Any, BLOCK_SIZE: int = 64, num_warps: int = 4) -> Any:  # noqa: N803
        return x * 2

    tuner = TritonAutoTuner(
        kernel_fn=dummy_kernel,
        config_space={"BLOCK_SIZE": [64, 128], "num_warps": [4, 8]},
        warmup_runs=2,
        benchmark_runs=5,
        cache_dir=str(tmp_path),
    )
    x = torch.randn(1024, device="cuda")
    result = tuner.tune(x, problem_size=(1024,), device="cuda:0", kernel_type="dummy")
    assert len(result.all_results) == 4
    assert result.metrics.latency_ms > 0
    assert tuner.cache.get("dummy", (1024,), "cuda:0") == result.best_config


def test_the_work_on_the_device_is_timed_and_not_its_launch(torch: Any) -> None:
    x = torch.randn(4096, 4096, device="cuda")

    def kernel(x: Any, products: int) -> None:
        for _ in range(products):
            torch.mm(x, x)

    result = TritonAutoTuner(kernel, {"products": [8, 1]}, 2, 10).tune(x)
    times = {config["products"]: metrics for config, metrics in result.all_results}
    one, eight = times[1], times[8]
    assert isinstance(one, KernelMetrics)
    assert isinstance(eight, KernelMetrics)
    assert result.best_config == {"products": 1}
    assert eight.latency_ms > 4 * one.latency_ms


def test_tensors_in_a_closure_are_timed_on_the_device_too(torch: Any) -> None:
    x = torch.randn(4096, 4096, device="cuda")

    def kernel(products: int) -> None:
        for _ in range(products):
            torch.mm(x, x)

    assert TritonAutoTuner(kernel, {"products": [8, 1]}, 2, 10).tune().best_config == {
        "products": 1
    }


def test_time_spent_on_the_host_does_not_count(torch: Any) -> None:
    def kernel(x: Any, products: int) -> None:
        if products == 1:
            time.sleep(300e-6)  # longer than eight of these products take
        for _ in range(products):
            torch.mm(x, x)

    x = torch.randn(512, 512, device="cuda")
    result = TritonAutoTuner(kernel, {"products": [8, 1]}, 1, 5).tune(x)
    assert result.best_config == {"products": 1}


def test_time_spent_on_the_host_counts_where_nothing_says_that_a_gpu_is_used(torch: Any) -> None:
    class Hidden:
        def __init__(self) -> None:
            self.x = torch.randn(4096, 4096, device="cuda")

        def __call__(self, products: int, wait_ms: int) -> None:
            time.sleep(wait_ms / 1e3)
            for _ in range(products):
                torch.mm(self.x, self.x)

    space = {"products": [8, 1], "wait_ms": [50, 0]}
    result = TritonAutoTuner(Hidden(), space, 1, 5).tune()
    assert result.best_config == {"products": 1, "wait_ms": 0}
    times = {tuple(config.values()): metrics for config, metrics in result.all_results}
    eight, one = times[8, 0], times[1, 0]
    assert isinstance(eight, KernelMetrics)
    assert isinstance(one, KernelMetrics)
    assert eight.latency_ms > 4 * one.latency_ms


def test_without_numbers_the_fastest_of_a_race_is_found_on_the_device(torch: Any) -> None:
    def kernel(x: Any, products: int) -> None:
        for _ in range(products):
            torch.mm(x, x)

    x = torch.randn(2048, 2048, device="cuda")
    result = TritonAutoTuner(kernel, {"products": [8, 4, 1, 2]}).tune(x)
    assert result.best_config == {"products": 1}
    assert len(result.all_results) == 4


def test_each_config_is_called_at_least_as_often_as_asked_on_the_device(torch: Any) -> None:
    calls: Counter[int] = Counter()

    def kernel(x: Any, block: int) -> Any:
        calls[block] += 1
        return x + block

    TritonAutoTuner(kernel, {"block": [1, 2]}, 3, 7).tune(torch.ones(8, device="cuda"))
    assert set(calls) == {1, 2}
    assert min(calls.values()) >= 10


def test_a_config_that_raises_on_the_device_is_recorded_and_skipped(torch: Any) -> None:
    def kernel(x: Any, columns: int) -> Any:
        return x @ torch.ones(columns, 4, device="cuda")

    result = TritonAutoTuner(kernel, {"columns": [5, 8]}, 1, 3).tune(
        torch.ones(4, 8, device="cuda")
    )
    assert result.best_config == {"columns": 8}
    assert isinstance(result.all_results[0][1], str)


def test_a_dtype_can_be_tuned_and_comes_back_from_the_cache(torch: Any, tmp_path: Path) -> None:
    def kernel(x: Any, dtype: Any) -> Any:
        return x.to(dtype)

    space = {"dtype": [torch.float16, torch.bfloat16]}
    x = torch.ones(8, device="cuda")
    first = TritonAutoTuner(kernel, space, 0, 3, cache_dir=str(tmp_path)).tune(
        x, problem_size=(8,), device="cuda:0"
    )
    second = TritonAutoTuner(kernel, space, 0, 3, cache_dir=str(tmp_path)).tune(
        x, problem_size=(8,), device="cuda:0"
    )
    assert second.from_cache
    assert second.best_config["dtype"] is first.best_config["dtype"]


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "cuda:x"])
def test_a_device_this_machine_does_not_have_is_refused(torch: Any, device: str) -> None:
    tuner = TritonAutoTuner(lambda x, block: x + block, {"block": [1]}, 0, 1)
    with pytest.raises(UsageError, match=f"no device '{device}'; valid: cpu, cuda:0"):
        tuner.tune(torch.ones(8, device="cuda"), problem_size=(8,), device=device)
    assert tuner.cache.get_all_keys() == []


def test_tensors_elsewhere_than_the_device_says_are_refused(torch: Any) -> None:
    tuner = TritonAutoTuner(lambda x, block: x + block, {"block": [1]}, 0, 1)
    with pytest.raises(UsageError, match="device='cpu', but a tensor argument is on cuda:0"):
        tuner.tune(torch.ones(8, device="cuda"), device="cpu")


@pytest.mark.parametrize("by_name", [False, True])
def test_a_device_may_be_any_gpu_or_a_gpus_name(torch: Any, by_name: bool) -> None:
    device = torch.cuda.get_device_name(0) if by_name else "cuda"
    tuner = TritonAutoTuner(lambda x, block: x + block, {"block": [1]}, 0, 1)
    result = tuner.tune(torch.ones(8, device="cuda"), problem_size=(8,), device=device)
    assert result.device == device
