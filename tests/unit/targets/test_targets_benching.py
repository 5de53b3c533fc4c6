"""The timer by itself: what a call takes, which of several is faster, and how sure that is."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.cli import main
from whet.core.errors import TargetError, UsageError
from whet.measure.timers import CpuTimer
from whet.targets.benching import Bench, timed
from whet.testing.fake_stream import US, QueuedKernel, Stream
from whet.testing.fakes import FakeDevice, NoiseModel


def on_a_fake(seed: int, noise: float, budget_s: float = 0.05, **ns: float) -> Bench:
    device = FakeDevice(NoiseModel(gaussian=noise), seed=seed)
    clock = device.clock
    timer = CpuTimer(clock, clock.cpu, cpu_resolution_ns=1)
    return timed(timer, {name: device.kernel(one) for name, one in ns.items()}, budget_s, "fake")


class TestOnAFake:
    def test_the_interval_has_the_true_time_as_often_as_it_says(self) -> None:
        runs = [on_a_fake(seed, 0.03, 0.0, one=500_000.0)["one"] for seed in range(200)]
        covered = sum(run.low_ns <= 500_000 <= run.high_ns for run in runs)
        assert covered >= 180  # 95 % wanted; 180 or fewer would be seen once in 400 times

    def test_a_difference_is_found_and_has_its_interval(self) -> None:
        found = on_a_fake(1, 0.01, first=500_000.0, faster=450_000.0)["faster"]
        assert found.differs
        assert found.speed is not None
        assert found.speed.low <= 500 / 450 <= found.speed.high

    def test_equals_are_rarely_told_apart(self) -> None:
        told = [on_a_fake(seed, 0.02, 0.0, a=5e5, b=5e5)["b"].differs for seed in range(100)]
        assert sum(told) <= 12

    def test_a_drift_hits_all_alike(self) -> None:
        device = FakeDevice(NoiseModel(gaussian=0.002, drift_per_s=3.0), seed=5)
        timer = CpuTimer(device.clock, device.clock.cpu, cpu_resolution_ns=1)
        kernels = {"a": device.kernel(500_000.0), "b": device.kernel(500_000.0)}
        found = timed(timer, kernels, 0.05, "fake")
        assert max(found["a"].samples) > 1.05 * min(found["a"].samples)
        speed = found["b"].speed
        assert speed is not None
        assert speed.mid == pytest.approx(1.0, abs=0.01)

    def test_rates(self) -> None:
        device = FakeDevice(NoiseModel(), seed=0)
        timer = CpuTimer(device.clock, device.clock.cpu, cpu_resolution_ns=1)
        found = timed(timer, {"one": device.kernel(500_000.0)}, 0.0, "fake", 1e9, 5e5)
        assert found["one"].gflops == pytest.approx(2_000.0)
        assert found["one"].gigabytes == pytest.approx(1.0)
        assert "GFLOP/s" in str(found)

    def test_on_a_gpu_launches_are_timed_from_a_full_queue(self, monkeypatch: Any) -> None:
        from whet.measure.gpu.timer import CudaTimer
        from whet.targets import benching

        monkeypatch.setattr(benching, "_host_ns", lambda run: 7_000.0)
        stream = Stream()
        timer = CudaTimer(stream, overhead_ns=0.0)
        kernels = {"a": QueuedKernel(stream, 5 * US), "b": QueuedKernel(stream, 10 * US)}
        found = timed(timer, kernels, 0.0, "fake")
        assert (found["a"].median_ns, found["b"].median_ns) == (5 * US, 10 * US)
        assert "cold L2" in found.method
        assert "7 µs" in str(found)


class TestCalls:
    def test_arguments_go_to_every_callable(self) -> None:
        seen = []
        found = whet.bench(
            lambda x: seen.append(("one", x)),
            3,
            compare={"two": lambda x: seen.append(("two", x))},
            budget="10ms",
        )
        assert set(seen) == {("one", 3), ("two", 3)}
        assert [row.name for row in found.rows] == ["<lambda>", "two"]

    def test_a_slow_call_is_called_often_enough_for_an_interval(self) -> None:
        calls = []
        whet.bench(lambda: calls.append(sum(range(200_000))), budget="1ms")
        assert len(calls) >= 7

    def test_a_call_that_raises_says_what_it_raised(self) -> None:
        with pytest.raises(ZeroDivisionError):
            whet.bench(lambda: 1 / 0)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({}, "nothing to time"),
            ({"compare": {"x": 3}}, "'x' has type int"),
            ({"compare": {"x": len}, "budget": "5trials"}, "give a time"),
            ({"compare": {"x": len}, "device": "tpu"}, "use cpu or cuda"),
            ({"compare": {"x": len}, "device": "cuda"}, "finds no GPU"),
            ({"compare": {"x": len}, "l2": "hot"}, "use cold or warm"),
        ],
    )
    def test_what_cannot_be_timed(self, given: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            whet.bench(**given)

    def test_work_that_is_left_undone(self) -> None:
        async def later() -> None: ...

        with pytest.raises(TargetError, match="coroutine function"):
            whet.bench(later)
        with pytest.raises(TargetError, match="returned a generator"):
            whet.bench(lambda: (random.random() for _ in range(3)))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    text = "def one(): return sum(range(50))\nways = {'a': one, 'b': lambda: sum(range(9))}\n"
    text += "def needs(x): ...\nnumber = 3\n"
    (tmp_path / "calls.py").write_text(text)
    return tmp_path


class TestCommand:
    def test_several_stand_side_by_side(self, file: Path, capsys: Any) -> None:
        assert main(["bench", "calls.py:one", "calls.py:ways", "--budget", "20ms"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines[1:4]] == ["one", "a", "b"]
        assert "speed of one" in lines[0]

    def test_json(self, file: Path, capsys: Any) -> None:
        assert main(["bench", "calls.py:ways", "--budget", "20ms", "--flops", "50", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [row["name"] for row in found["rows"]] == ["a", "b"]
        assert found["rows"][0]["low_ns"] <= found["rows"][0]["median_ns"]

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("needs", "needs requires arguments (x)"),
            ("number", "has type int"),
            ("ones", "did you mean 'one'? valid: one, ways, needs\n"),
        ],
    )
    def test_what_cannot_be_called(self, file: Path, capsys: Any, name: str, message: str) -> None:
        assert main(["bench", f"calls.py:{name}"]) == 2
        assert message in capsys.readouterr().err
