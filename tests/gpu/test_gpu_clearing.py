"""What runs between two timed launches, on a real device."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from whet.measure.gpu.devices import DriverCuda, TorchCuda
from whet.measure.gpu.driver import driver_on
from whet.testing.places import Places

pytestmark = pytest.mark.gpu

LAUNCHES = 64


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def places(torch: Any, before: Callable[[], object]) -> int:
    """In how many places of the device a grid began."""
    noting = Places(driver_on(0))
    found = torch.zeros(LAUNCHES, noting.blocks, dtype=torch.int32, device="cuda")
    for row in found:
        before()
        noting.note(row.data_ptr())
        torch.cuda.synchronize()
    return len({tuple(row) for row in found.tolist()})


@pytest.mark.parametrize("device", [TorchCuda, DriverCuda])
@pytest.mark.parametrize("l2", ["cold", "warm"])
def test_grids_begin_in_other_places_from_launch_to_launch(
    torch: Any, device: Callable[[int], TorchCuda | DriverCuda], l2: str
) -> None:
    torch.zeros(1, device="cuda")
    api = device(0)
    size = api.l2_bytes if l2 == "cold" else 0
    with api.current():
        still = places(torch, lambda: None)
        moved = places(torch, lambda: api.flush(size))
    assert api.fresh
    assert moved >= 4 * still


FORBIDDEN = """
import torch
from whet.measure.gpu.timer import CudaTimer
from whet.measure.gpu.driver import CudaError, driver_on
from whet.measure.gpu.clearing import PTX
from whet.targets.triton.device import method

torch.zeros(1, device="cuda")
try:
    driver_on(0).module(PTX)
    print("compiled")
except CudaError:
    print("refused")
timer, data = CudaTimer(device=0), torch.zeros(1 << 20, device="cuda")
class Doubling:
    def repeat(self, n):
        for _ in range(n):
            data.mul_(2)
run = Doubling()
reading = timer.measure(run, 3, timer.warm(run))
print(reading.timer, timer.name, method(0, "cold", None, False).timer, reading.quality)
"""


def test_without_a_compiler_torch_clears_and_look_ups_expect_it(torch: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORBIDDEN],
        # What was compiled once is taken from the driver's cache, forbidden or not.
        env={**os.environ, "CUDA_DISABLE_PTX_JIT": "1", "CUDA_CACHE_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["refused", "cuda cuda cuda clean"], done.stderr
