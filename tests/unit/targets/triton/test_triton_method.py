from __future__ import annotations

import pytest

from whet.core.timing import Method
from whet.core.workload import Device, Limits
from whet.measure.gpu import driver
from whet.targets.triton import device


def a_device_of_one_mebibyte(
    monkeypatch: pytest.MonkeyPatch, vendor: str, compiles: bool = True
) -> None:
    found = Device("Test GPU", vendor, "90", "13.0", Limits(l2_bytes=1 << 20))
    monkeypatch.setattr(device, "describe", lambda index: found)
    monkeypatch.setattr(driver, "compiles_ptx", lambda: compiles)


@pytest.mark.parametrize(
    ("l2", "l2_bytes", "method"),
    [
        ("cold", None, Method("cuda+fresh", "cold")),
        ("cold", 1 << 21, Method("cuda+fresh", "cold")),
        ("cold", 4096, Method("cuda-4096+fresh", "cold")),
        ("cold", 0, Method("cuda+fresh", "warm")),
        ("warm", 4096, Method("cuda+fresh", "warm")),
    ],
)
def test_what_is_cleared_decides_what_timings_are_compared_with(
    monkeypatch: pytest.MonkeyPatch, l2: str, l2_bytes: int | None, method: Method
) -> None:
    a_device_of_one_mebibyte(monkeypatch, "nvidia")
    assert device.method(0, l2, l2_bytes, graph=False) == method  # type: ignore[arg-type]
    graph = device.method(0, l2, l2_bytes, graph=True)  # type: ignore[arg-type]
    assert (graph != method, graph.l2) == (True, method.l2)


@pytest.mark.parametrize(("vendor", "compiles"), [("amd", True), ("nvidia", False)])
def test_where_torch_clears_no_launch_is_fresh(
    monkeypatch: pytest.MonkeyPatch, vendor: str, compiles: bool
) -> None:
    a_device_of_one_mebibyte(monkeypatch, vendor, compiles)
    assert device.method(0, "cold", None, graph=False) == Method("cuda", "cold")
    assert device.method(0, "cold", None, graph=True) == Method("cuda-graph", "cold")
