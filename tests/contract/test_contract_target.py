"""Every target that ships passes the kit."""

import numpy as np
import pytest

import whet
from whet.targets.schedule.payloads import matmul
from whet.testing.fake_target import FakeTarget
from whet.testing.target_kit import TargetContract


class TestNative(TargetContract):
    def make_target(self):
        x = np.arange(1000, dtype=np.float32)
        return whet.native(
            "void twice(const float *x, float *y, int n)"
            "{ for (int i = 0; i < n; i += STEP) for (int k = i; k < i + STEP && k < n; k++)"
            " y[k] = 2 * x[k]; }",
            {"STEP": [1, 8], "opt": ["-O1", "-O3"]},
            flags=["opt"],
            function="twice",
            args={"x": x, "y": np.zeros_like(x), "n": x.size},
            outputs=["y"],
            reference=lambda x, y, n: 2 * x,
        )


class TestFunction(TargetContract):
    def make_target(self):
        def count(n, step):
            return sum(range(0, n, step)) and 1

        return whet.function(count, {"step": [1, 10]}, args=[5000], reference=1)


class TestFunctionInThisProcess(TargetContract):
    def make_target(self):
        return whet.function(lambda a: sum(range(a)), {"a": [500, 100]}, isolate=False, name="sum")


class TestChoice(TargetContract):
    def make_target(self):
        def loop(n):
            return sum(i for i in range(n))

        return whet.choice({"loop": loop, "sum": lambda n: n * (n - 1) // 2}).target(5000)


class TestFake(TargetContract):
    def make_target(self):
        return FakeTarget({"t": [2, 1]}, lambda config: 1000.0 * config["t"], building=True)


@pytest.mark.slow
class TestSchedule(TargetContract):
    def make_target(self):
        pytest.importorskip("torch_mlir", reason="schedules need torch-mlir")
        return whet.schedule(
            matmul(16, 32, 16),
            constraints=["ti == 8", "tj == 32", "tk == 4", "bk == 256", "k == 'whole'"],
        )
