"""Callables on a simulated GPU: the engine's CUDA timer times them, by the device's clock."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from whet.autotuner import KernelMetrics, TritonAutoTuner
from whet.autotuner.tuner import gpu
from whet.core.errors import UsageError
from whet.testing.fake_stream import US, Stream


class Tensor:
    def __init__(self, index: int | None = 0) -> None:
        self.is_cuda = index is not None
        self.device = FakeDevice(index)


class FakeDevice:
    def __init__(self, index: int | None) -> None:
        self.index = index

    def __str__(self) -> str:
        return "cpu" if self.index is None else f"cuda:{self.index}"


class Torch:
    """Two GPUs, as far as this room asks of them."""

    Tensor = Tensor

    def __init__(self) -> None:
        self.current = 0
        self.waits: list[int] = []
        self.made_current: set[int] = set()
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            device_count=lambda: 2,
            current_device=lambda: self.current,
            get_device_name=lambda index: "Simulated",
            synchronize=self.synchronize,
            device=self.device,
        )

    def synchronize(self, index: int | None = None) -> None:
        self.waits.append(self.current if index is None else index)

    @contextlib.contextmanager
    def device(self, index: int) -> Iterator[None]:
        before, self.current = self.current, index
        self.made_current.add(index)
        try:
            yield
        finally:
            self.current = before


class Machine:
    """`timed` has the devices that a CUDA timer was made for."""

    def __init__(self) -> None:
        self.torch = Torch()
        self.stream = Stream()
        self.timed: list[int] = []

    def open(self, device: int) -> Stream:
        self.timed.append(device)
        return self.stream


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine()
    monkeypatch.setitem(sys.modules, "torch", made.torch)
    monkeypatch.setattr("whet.measure.gpu.timer.TorchCuda", made.open)
    gpu.timer.cache_clear()
    yield made
    gpu.timer.cache_clear()


def times(result: Any) -> dict[int, float]:
    found: dict[int, float] = {}
    for config, metrics in result.all_results:
        assert isinstance(metrics, KernelMetrics)
        found[config["us"]] = round(1e3 * metrics.latency_ms, 3)
    return found


@pytest.mark.parametrize("benchmark_runs", [None, 5])
def test_the_devices_clock_times_what_is_queued_and_not_the_host(
    machine: Machine, benchmark_runs: int | None
) -> None:
    def kernel(x: Tensor, us: int) -> None:
        machine.stream.on_host(500 * US if us == 20 else 0)
        machine.stream.queue(us * US)

    tuner = TritonAutoTuner(kernel, {"us": [50, 20, 30]}, benchmark_runs=benchmark_runs)
    result = tuner.tune(Tensor())
    assert result.best_config == {"us": 20}
    assert times(result) == {50: 50, 20: 20, 30: 30}
    assert machine.timed == [0]


def test_of_equally_fast_configs_the_first_is_kept(machine: Machine) -> None:
    tuner = TritonAutoTuner(
        lambda x, us, block: machine.stream.queue(us * US), {"us": [50, 20], "block": [4, 1, 2]}
    )
    assert tuner.tune(Tensor()).best_config == {"us": 20, "block": 4}


def test_the_l2_is_cold_unless_the_settings_say_otherwise(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuner = TritonAutoTuner(lambda x, us: machine.stream.queue(us * US), {"us": [20, 50]})
    tuner.tune(Tensor())
    assert set(machine.stream.flushes) == {machine.stream.l2_bytes}
    machine.stream.flushes.clear()
    monkeypatch.setenv("WHET_L2", "warm")
    tuner.tune(Tensor())
    assert machine.stream.flushes == []


def test_what_the_timer_knows_of_a_device_holds_for_the_next_tuning(machine: Machine) -> None:
    tuner = TritonAutoTuner(lambda x, us: machine.stream.queue(us * US), {"us": [20, 50]})
    for _ in range(2):
        tuner.tune(Tensor())
    assert machine.timed == [0]


def test_calls_are_made_on_the_device_of_the_tensors(machine: Machine) -> None:
    devices: Counter[int] = Counter()

    def kernel(x: dict[str, list[Tensor]], us: int) -> None:
        devices[machine.torch.current] += 1
        machine.stream.queue(us * US)

    TritonAutoTuner(kernel, {"us": [20, 50]}, 3, 2).tune({"x": [Tensor(None), Tensor(1)]})
    assert set(devices) == {1}
    assert machine.timed == [1]


def test_each_config_is_called_at_least_as_often_as_asked(machine: Machine) -> None:
    calls: Counter[int] = Counter()

    def kernel(x: Tensor, us: int) -> None:
        calls[us] += 1
        machine.stream.queue(us * US)

    TritonAutoTuner(kernel, {"us": [20, 900]}, 30, 70).tune(Tensor())
    assert min(calls.values()) >= 100


def test_tensors_that_a_function_uses_from_around_it_say_where_it_runs(machine: Machine) -> None:
    x = Tensor(1)

    def kernel(us: int) -> None:
        assert x.is_cuda
        machine.stream.queue(us * US)

    assert times(TritonAutoTuner(kernel, {"us": [50, 20]}).tune()) == {50: 50, 20: 20}
    assert machine.timed == [1]


def test_a_devices_name_does_not_lead_away_from_those_tensors(machine: Machine) -> None:
    x = Tensor(1)

    def kernel(us: int) -> None:
        assert x.is_cuda
        machine.stream.queue(us * US)

    TritonAutoTuner(kernel, {"us": [50, 20]}).tune(device="cuda")
    assert machine.timed == [1]


def test_a_callable_that_does_nothing_on_the_device_is_named(machine: Machine) -> None:
    def kernel(x: Tensor, block: int) -> None: ...

    with pytest.warns(UserWarning, match=r"kernel\(\) queued no work .* cuda:0.*device='cpu'"):
        TritonAutoTuner(kernel, {"block": [1, 2]}).tune(Tensor())


def test_where_nothing_says_so_the_hosts_clock_waits_for_the_device(machine: Machine) -> None:
    class Hidden:
        def __call__(self, block: int) -> None: ...

    TritonAutoTuner(Hidden(), {"block": [1, 2]}, 0, 3).tune()
    assert machine.timed == []
    assert len(machine.torch.waits) >= 2 * 3


def test_on_the_host_nobody_waits_for_a_gpu(machine: Machine) -> None:
    TritonAutoTuner(lambda block: None, {"block": [1, 2]}, 0, 3).tune(device="cpu")
    assert machine.timed == []
    assert machine.torch.waits == []


@pytest.mark.parametrize(
    ("device", "timed"), [("cuda", 0), ("cuda:0", 0), ("cuda:1", 1), ("Simulated", 0)]
)
def test_a_device_that_is_named_is_made_current(machine: Machine, device: str, timed: int) -> None:
    tuner = TritonAutoTuner(lambda us: machine.stream.queue(us * US), {"us": [20, 50]})
    result = tuner.tune(problem_size=8, device=device)
    assert (result.best_config, result.device) == ({"us": 20}, device)
    assert machine.timed == [timed]
    assert machine.torch.made_current == {timed}
    assert tuner.cache.get_all_keys() == [("<lambda>", 8, device)]


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("cpu", "device='cpu', but a tensor argument is on cuda:1"),
        ("cuda:0", "device='cuda:0', but a tensor argument is on cuda:1"),
        ("cuda:2", "no device 'cuda:2'; valid: cpu, cuda:0, cuda:1"),
        ("H200", "no device 'H200'; valid: cpu, cuda:0, cuda:1, Simulated"),
    ],
)
def test_a_device_that_is_elsewhere_or_not_here_is_refused(
    machine: Machine, device: str, said: str
) -> None:
    ran: list[int] = []
    with pytest.raises(UsageError, match=said):
        TritonAutoTuner(lambda x, us: ran.append(us), {"us": [20]}).tune(Tensor(1), device=device)
    assert ran == []


def test_a_config_that_fails_on_the_device_is_recorded_and_skipped(machine: Machine) -> None:
    def kernel(x: Tensor, us: int) -> None:
        machine.stream.queue(us * US)
        if us == 20:
            raise RuntimeError("no such tile")

    result = TritonAutoTuner(kernel, {"us": [50, 20]}).tune(Tensor())
    assert result.best_config == {"us": 50}
    assert "no such tile" in str({c["us"]: m for c, m in result.all_results}[20])


@pytest.mark.parametrize("benchmark_runs", [None, 5])
def test_callables_that_wait_for_the_device_themselves_are_compared_too(
    machine: Machine, benchmark_runs: int | None
) -> None:
    def kernel(x: Tensor, us: int) -> None:
        machine.stream.queue(us * US)
        machine.stream.synchronize()

    tuner = TritonAutoTuner(kernel, {"us": [50, 20]}, benchmark_runs=benchmark_runs)
    assert tuner.tune(Tensor()).best_config == {"us": 20}
