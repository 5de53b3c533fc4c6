from __future__ import annotations

import pytest

from whet.core.device import Device, Limits
from whet.core.timing import Method
from whet.targets.triton import device


@pytest.fixture(autouse=True)
def a_device_of_one_mebibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Device("Test GPU", "cuda", "90", "13.0", Limits(l2_bytes=1 << 20))
    monkeypatch.setattr(device, "describe", lambda index: found)


@pytest.mark.parametrize(
    ("l2", "l2_bytes", "method"),
    [
        ("cold", None, Method("cuda", "cold")),
        ("cold", 1 << 21, Method("cuda", "cold")),
        ("cold", 4096, Method("cuda-4096", "cold")),
        ("cold", 0, Method("cuda", "warm")),
        ("warm", 4096, Method("cuda", "warm")),
    ],
)
def test_what_is_cleared_decides_what_timings_are_compared_with(
    l2: str, l2_bytes: int | None, method: Method
) -> None:
    assert device.method(0, l2, l2_bytes, graph=False) == method  # type: ignore[arg-type]
    graph = device.method(0, l2, l2_bytes, graph=True)  # type: ignore[arg-type]
    assert (graph != method, graph.l2) == (True, method.l2)
