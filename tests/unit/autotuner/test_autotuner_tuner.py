"""`TritonAutoTuner`: what it measures and caches, where it runs, and what it does in each mode."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.autotuner import (
    ConfigCache,
    KernelMetrics,
    TritonAutoTuner,
    TuningFailedError,
    generate_configs,
)
from whet.autotuner.tuner import CallableTarget, PlainChoices, find_place
from whet.core.errors import NotTunedError, UsageError
from whet.core.mode import Mode
from whet.measure.timers import CpuTimer
from whet.testing.target_kit import TargetContract


class Kernel:
    """Counts its calls by config and waits as long as the config says."""

    def __init__(self, failing: tuple[int, ...] = ()) -> None:
        self.calls: Counter[int] = Counter()
        self.failing = failing

    def __call__(self, *args: Any, wait_ms: int = 1, **kwargs: Any) -> None:
        self.calls[wait_ms] += 1
        if wait_ms in self.failing:
            raise RuntimeError(f"no luck with {wait_ms}")
        time.sleep(wait_ms / 1e3)


def _tuner(kernel: Callable[..., Any], **options: Any) -> TritonAutoTuner:
    space = {"wait_ms": [20, 1, 10]}
    return TritonAutoTuner(
        kernel, **{"config_space": space, "warmup_runs": 1, "benchmark_runs": 3, **options}
    )


@pytest.mark.medium
def test_the_config_with_the_lowest_median_wins() -> None:
    result = _tuner(Kernel()).tune()
    assert result.best_config == {"wait_ms": 1}
    assert ({"wait_ms": 1}, result.metrics) in result.all_results


@pytest.mark.parametrize(("warmup_runs", "benchmark_runs"), [(0, 1), (2, 5), (10, 100)])
def test_each_config_is_called_at_least_as_often_as_asked(
    warmup_runs: int, benchmark_runs: int
) -> None:
    calls: Counter[int] = Counter()

    def kernel(block: int) -> None:
        calls[block] += 1

    TritonAutoTuner(kernel, {"block": [1, 2, 4]}, warmup_runs, benchmark_runs).tune()
    assert set(calls) == {1, 2, 4}
    assert min(calls.values()) >= warmup_runs + benchmark_runs


@pytest.mark.medium
def test_a_config_that_has_clearly_lost_gets_few_calls_unless_their_number_is_given() -> None:
    calls: dict[int | None, int] = {}
    for benchmark_runs in (None, 20):
        kernel = Kernel()
        space = {"wait_ms": [1, 60]}
        assert TritonAutoTuner(kernel, space, benchmark_runs=benchmark_runs).tune().best_config == {
            "wait_ms": 1
        }
        calls[benchmark_runs] = kernel.calls[60]
    assert calls[None] < 10
    assert calls[20] >= 20


@pytest.mark.medium
def test_without_numbers_every_config_is_still_run_and_reported() -> None:
    kernel = Kernel(failing=(10,))
    result = TritonAutoTuner(kernel, {"wait_ms": [20, 1, 10]}).tune()
    assert result.best_config == {"wait_ms": 1}
    outcomes = {config["wait_ms"]: type(outcome) for config, outcome in result.all_results}
    assert outcomes == {20: KernelMetrics, 1: KernelMetrics, 10: str}


def test_a_short_kernel_is_timed_by_many_calls_for_each_sample() -> None:
    calls: Counter[int] = Counter()

    def kernel(block: int) -> None:
        calls[block] += 1

    metrics = TritonAutoTuner(kernel, {"block": [1]}, 0, 3).tune().metrics
    assert calls[1] > 100
    assert metrics.min_ms is not None
    assert 0 < metrics.min_ms <= metrics.latency_ms


def test_the_kernel_is_given_the_arguments_and_the_config_as_keywords() -> None:
    seen: list[Any] = []

    def kernel(x: Any, *, scale: int, block: int, warps: int) -> None:
        seen.append((x, scale, block, warps))

    marker = object()
    TritonAutoTuner(kernel, {"block": [1, 2], "warps": [4]}, 0, 1).tune(marker, scale=3)
    assert list(dict.fromkeys(seen)) == [(marker, 3, 1, 4), (marker, 3, 2, 4)]


def test_every_config_is_tried_in_order_and_reported_with_its_metrics() -> None:
    space: dict[str, list[Any]] = {"a": [3, 1], "b": ["x", "y"]}
    result = TritonAutoTuner(lambda a, b: None, space, 0, 3).tune()
    assert [config for config, _ in result.all_results] == generate_configs(space)
    assert all(isinstance(metrics, KernelMetrics) for _, metrics in result.all_results)


@pytest.mark.slow
def test_a_space_of_thousands_is_still_tried_whole() -> None:
    space = {"a": list(range(40)), "b": list(range(40))}
    result = TritonAutoTuner(lambda a, b: None, space, 0, 1).tune()
    assert len(result.all_results) == 1600


def test_the_metrics_summarise_all_timed_calls() -> None:
    metrics = _tuner(Kernel(), config_space={"wait_ms": [2]}).tune().metrics
    assert metrics.min_ms is not None
    assert metrics.mean_ms is not None
    assert metrics.std_ms is not None
    assert 2.0 <= metrics.min_ms <= metrics.latency_ms
    assert metrics.min_ms <= metrics.mean_ms
    assert metrics.std_ms >= 0.0


@pytest.mark.medium
def test_a_config_that_raises_is_recorded_and_skipped() -> None:
    result = _tuner(Kernel(failing=(1,))).tune()
    assert result.best_config == {"wait_ms": 10}
    outcomes = {config["wait_ms"]: outcome for config, outcome in result.all_results}
    assert isinstance(outcomes[1], str)
    assert "no luck with 1" in outcomes[1]
    assert isinstance(outcomes[20], KernelMetrics)


@pytest.mark.medium
def test_a_config_that_raises_only_while_it_is_timed_is_skipped_too() -> None:
    calls: Counter[int] = Counter()

    def kernel(block: int) -> None:
        calls[block] += 1
        if block == 1 and calls[block] > 4:
            raise ValueError("worn out")
        time.sleep(0.025)  # so long that the timer's warm-up is one call

    result = TritonAutoTuner(kernel, {"block": [1, 2]}, 2, 5).tune()
    assert result.best_config == {"block": 2}
    assert calls[1] == 5
    assert "worn out" in str(result.all_results[0][1])


def test_when_nothing_works_the_error_counts_the_failures_and_quotes_the_first() -> None:
    tuner = _tuner(Kernel(failing=(1, 10, 20)))
    with pytest.raises(TuningFailedError, match=r"3 run_error.*no luck with 20"):
        tuner.tune()


def test_a_failed_tuning_caches_nothing(tmp_path: Path) -> None:
    tuner = _tuner(Kernel(failing=(1, 10, 20)), cache_dir=tmp_path)
    with pytest.raises(TuningFailedError):
        tuner.tune(problem_size=(8,), device="cpu")
    assert tuner.cache.get_all_keys() == []


@pytest.mark.medium
def test_problem_size_and_device_come_back_in_the_result() -> None:
    result = _tuner(Kernel()).tune(problem_size=(8, 9), device="cpu", kernel_type="copy")
    assert (result.problem_size, result.device) == ((8, 9), "cpu")


@pytest.mark.medium
def test_the_winner_is_cached_under_kernel_type_problem_size_and_device() -> None:
    tuner = _tuner(Kernel())
    tuner.tune(problem_size=(8, 9), device="cpu", kernel_type="copy")
    assert tuner.cache.get("copy", (8, 9), "cpu") == {"wait_ms": 1}


def test_without_a_kernel_type_the_name_of_the_kernel_is_the_key() -> None:
    def scale(x: int, block: int) -> None: ...

    for kernel in (scale, functools.partial(scale, 3)):
        tuner = TritonAutoTuner(kernel, {"block": [1]}, 0, 1)
        tuner.tune(*([3] if kernel is scale else []), problem_size=(8,), device="cpu")
        assert tuner.cache.get_all_keys() == [("scale", (8,), "cpu")]


@pytest.mark.medium
@pytest.mark.parametrize("partial_key", [{}, {"problem_size": (8,)}, {"device": "cpu"}])
def test_without_a_full_key_nothing_is_cached(partial_key: dict[str, Any]) -> None:
    tuner = _tuner(Kernel())
    tuner.tune(**partial_key)
    assert tuner.cache.get_all_keys() == []


@pytest.mark.medium
def test_a_cached_config_is_measured_again_and_nothing_else_is_run() -> None:
    kernel = Kernel()
    tuner = _tuner(kernel)
    first = tuner.tune(problem_size=(8,), device="cpu")
    kernel.calls.clear()
    second = tuner.tune(problem_size=(8,), device="cpu")
    assert set(kernel.calls) == {1}
    assert (first.from_cache, second.from_cache) == (False, True)
    assert second.best_config == first.best_config
    assert second.all_results == [(second.best_config, second.metrics)]


@pytest.mark.medium
def test_another_problem_size_is_tuned_afresh() -> None:
    kernel = Kernel()
    tuner = _tuner(kernel)
    tuner.tune(problem_size=(8,), device="cpu")
    kernel.calls.clear()
    tuner.tune(problem_size=(9,), device="cpu")
    assert set(kernel.calls) == {1, 10, 20}


@pytest.mark.medium
def test_a_new_tuner_on_the_same_folder_uses_what_the_last_one_found(tmp_path: Path) -> None:
    _tuner(Kernel(), cache_dir=str(tmp_path)).tune(
        problem_size=(8,), device="cpu", kernel_type="copy"
    )
    kernel = Kernel()
    result = _tuner(kernel, cache_dir=str(tmp_path)).tune(
        problem_size=(8,), device="cpu", kernel_type="copy"
    )
    assert result.best_config == {"wait_ms": 1}
    assert set(kernel.calls) == {1}


@pytest.mark.medium
def test_a_cached_config_that_the_space_no_longer_offers_is_not_used(tmp_path: Path) -> None:
    ConfigCache(tmp_path).set("copy", (8,), "cpu", {"wait_ms": 3})
    tuner = _tuner(Kernel(), cache_dir=tmp_path)
    result = tuner.tune(problem_size=(8,), device="cpu", kernel_type="copy")
    assert result.best_config == {"wait_ms": 1}
    assert tuner.cache.get("copy", (8,), "cpu") == {"wait_ms": 1}


@pytest.mark.medium
def test_a_cached_config_that_fails_now_is_replaced_by_one_that_works(tmp_path: Path) -> None:
    ConfigCache(tmp_path).set("copy", (8,), "cpu", {"wait_ms": 1})
    tuner = _tuner(Kernel(failing=(1,)), cache_dir=tmp_path)
    result = tuner.tune(problem_size=(8,), device="cpu", kernel_type="copy")
    assert (result.best_config, result.from_cache) == ({"wait_ms": 10}, False)
    assert tuner.cache.get("copy", (8,), "cpu") == {"wait_ms": 10}


def test_a_value_that_json_cannot_hold_reaches_the_kernel_as_it_is(tmp_path: Path) -> None:
    given: list[Any] = []

    def kernel(cast: Any, tile: Any) -> None:
        given.append((cast, tile))

    space: dict[str, list[Any]] = {"cast": [complex], "tile": [[8, 16]]}
    for _ in range(2):
        tuner = TritonAutoTuner(kernel, space, 0, 1, cache_dir=str(tmp_path))
        result = tuner.tune(problem_size=(8,), device="cpu")
        assert result.best_config == {"cast": complex, "tile": [8, 16]}
    assert result.from_cache
    assert all(values == (complex, [8, 16]) for values in given)


@pytest.mark.medium
def test_the_environment_does_not_cut_the_search_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_BUDGET", "1trials")
    assert len(_tuner(Kernel()).tune().all_results) == 3


@pytest.mark.medium
def test_the_environment_does_not_change_how_many_samples_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WHET_SAMPLES", "1")
    kernel = Kernel()
    _tuner(kernel, benchmark_runs=7).tune()
    assert min(kernel.calls.values()) >= 7


@pytest.mark.medium
def test_tuning_leaves_nothing_in_the_users_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    _tuner(Kernel()).tune()
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_parameter_is_named_before_anything_runs() -> None:
    def kernel(x: int, BLOCK_SIZE: int = 64) -> None:  # noqa: N803
        raise AssertionError("ran")

    with pytest.raises(ValueError, match=r"'BLOCK_SIZ'; did you mean 'BLOCK_SIZE'\?"):
        TritonAutoTuner(kernel, {"BLOCK_SIZ": [64]})


def test_a_kernel_that_takes_any_keyword_takes_any_parameter() -> None:
    TritonAutoTuner(lambda **any_keyword: None, {"whatever": [1]}, 0, 1).tune()


def test_a_parameter_that_is_also_an_argument_is_refused() -> None:
    tuner = _tuner(Kernel())
    with pytest.raises(UsageError, match="'wait_ms' is tuned and also passed"):
        tuner.tune(wait_ms=3)


def test_a_missing_argument_is_said_once_instead_of_by_every_config() -> None:
    tuner = TritonAutoTuner(lambda x, block: None, {"block": [1, 2]}, 0, 1)
    with pytest.raises(UsageError, match="missing a required argument: 'x'"):
        tuner.tune()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"warmup_runs": -1}, "warmup_runs is -1"),
        ({"warmup_runs": 1.5}, "warmup_runs is 1.5"),
        ({"benchmark_runs": 0}, "benchmark_runs is 0"),
        ({"benchmark_runs": True}, "benchmark_runs is True"),
        ({"config_space": {}}, "empty"),
        ({"config_space": {"wait_ms": 64}}, "'wait_ms'"),
        ({"config_space": {"wait_ms": "64"}}, "'wait_ms'"),
        ({"config_space": {"wait_ms": []}}, "'wait_ms'"),
        ({"config_space": {"wait_ms": [1, 1]}}, "wait_ms.* twice"),
        ({"config_space": [1]}, "list"),
        ({"kernel_fn": 3}, "callable"),
    ],
)
def test_a_bad_argument_is_named_in_an_error_of_both_families(
    options: dict[str, Any], named: str
) -> None:
    def build() -> TritonAutoTuner:
        return TritonAutoTuner(
            **{"kernel_fn": Kernel(), "config_space": {"wait_ms": [1]}, **options}
        )

    with pytest.raises(UsageError, match=named):
        build()
    with pytest.raises(ValueError, match=named):
        build()


@pytest.mark.medium
def test_importing_the_room_and_tuning_do_not_import_torch() -> None:
    code = (
        "import sys\n"
        "from whet.autotuner import TritonAutoTuner\n"
        "TritonAutoTuner(lambda b: None, {'b': [1]}, 0, 1).tune()\n"
        "print([name for name in ('torch', 'triton', 'rich', 'typer') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


SIZE: dict[str, Any] = {"problem_size": 64, "device": "cpu"}


def recording(ran: list[int], mode: Mode | None = None) -> TritonAutoTuner:
    def kernel(block: int) -> None:
        ran.append(block)

    return TritonAutoTuner(kernel, {"block": [1, 2]}, mode=mode)


def test_the_cached_config_is_chosen_without_running_anything() -> None:
    ran: list[int] = []
    made = recording(ran, "cached")
    assert made.choose(**SIZE) == {"block": 1}
    made.cache.set("kernel", 64, "cpu", {"block": 2})
    assert made.choose(**SIZE) == {"block": 2}
    with whet.mode("tune"):
        assert made.choose(**SIZE) == {"block": 2}
    assert ran == []


def test_off_takes_the_first_and_require_wants_a_cached_one() -> None:
    made = recording([])
    with whet.mode("require"), pytest.raises(NotTunedError, match="kernel for 64 on cpu"):
        made.choose(**SIZE)
    made.cache.set("kernel", 64, "cpu", {"block": 2})
    with whet.mode("off"):
        assert made.choose(**SIZE) == {"block": 1}
    with whet.mode("require"):
        assert made.choose(**SIZE) == {"block": 2}


def test_tune_runs_nothing_where_it_may_not() -> None:
    ran: list[int] = []
    with whet.mode("cached"), pytest.raises(NotTunedError, match="does not allow running"):
        recording(ran).tune()
    assert ran == []


@pytest.mark.medium
def test_its_own_mode_outranks_the_context() -> None:
    with whet.mode("off"):
        assert recording([], "tune").tune().best_config


def two_blocks(ran: list[int] | None = None) -> TritonAutoTuner:
    def kernel(*args: Any, block: int) -> None:
        if ran is not None:
            ran.append(block)

    return TritonAutoTuner(kernel, {"block": [1, 2]}, 0, 1)


@pytest.fixture
def torch_without_cuda() -> Any:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    return torch


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
def test_cuda_without_cuda_is_refused_with_the_remedy(torch_without_cuda: Any, device: str) -> None:
    ran: list[int] = []
    tuned = two_blocks(ran)
    with pytest.raises(UsageError, match=f"cannot use device='{device}': .*device='cpu'"):
        tuned.tune(torch_without_cuda.ones(8), problem_size=(8,), device=device)
    assert ran == []
    assert tuned.cache.get_all_keys() == []


@pytest.mark.slow
def test_a_torch_device_is_held_to_the_same(torch_without_cuda: Any) -> None:
    with pytest.raises(UsageError, match="cannot use device='cuda:0'"):
        two_blocks().tune(problem_size=(8,), device=torch_without_cuda.device("cuda:0"))


def test_cuda_without_torch_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match="torch is not installed"):
        two_blocks().tune(problem_size=(8,), device="cuda:0")


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cuda0", ""])
def test_what_is_no_device_is_refused_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=f"no device '{device}'; valid: cpu"):
        two_blocks().tune(problem_size=(8,), device=device)


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_the_host_is_always_a_device(device: str) -> None:
    tuned = two_blocks()
    result = tuned.tune(problem_size=(8,), device=device)
    assert result.device == device
    assert tuned.cache.get_all_keys() == [("kernel", (8,), device)]


def test_choosing_asks_the_cache_of_any_device() -> None:
    tuned = two_blocks()
    tuned.cache.set("kernel", (8,), "cuda:0", {"block": 2})
    assert tuned.choose(problem_size=(8,), device="cuda:0") == {"block": 2}


calls: Counter[int] = Counter()


def wait_for(wait_ms: int) -> None:
    calls[wait_ms] += 1
    time.sleep(wait_ms / 1e3)


def waiting(warmup_runs: int = 0) -> CallableTarget:
    choices = PlainChoices({"wait_ms": [2, 0]})
    return CallableTarget(
        fn=wait_for,
        space=choices.space,
        name="wait_for",
        choices=choices,
        runs_on=find_place("cpu", wait_for, ()),
        timer=CpuTimer(),
        warmup_runs=warmup_runs,
    )


class TestCallableTarget(TargetContract):
    def make_target(self) -> CallableTarget:
        return waiting()


def test_a_config_is_called_as_often_as_asked_before_the_timers_own_warm_up() -> None:
    for warmup_runs, expected in ((0, 1), (1, 1), (5, 5)):
        target = waiting(warmup_runs)
        assert target.space.first is not None
        loaded = target.load(target.space.first, None)
        calls.clear()
        loaded.first_call()
        assert loaded.check().ok
        assert calls == {2: expected}
