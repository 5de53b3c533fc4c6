"""What runs between two timed launches, on a real device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from whet.measure.gpu.driver import driver_on
from whet.measure.gpu.driver_device import DriverCuda
from whet.measure.gpu.torch_device import TorchCuda
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
