from __future__ import annotations

import pytest

import whet
from whet.core.timing import Method
from whet.core.workload import Device, Limits
from whet.engine.settings import resolve_settings
from whet.measure.gpu import driver
from whet.targets.triton import device
from whet.targets.triton.call import Call
from whet.targets.triton.target import TritonTarget
from whet.testing.fake_triton import FakeTensor, fake_driver


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


def test_what_is_stored_is_asked_for_before_there_is_a_timer() -> None:
    """A timer talks to the driver, and here there is none that it could talk to."""
    triton = pytest.importorskip("triton")
    device.timer.cache_clear()

    @triton.jit
    def kernel(x, BLOCK):  # type: ignore[no-untyped-def]  # noqa: N803
        pass

    configs = [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})]
    with fake_driver():
        tuner = whet.autotune(configs=configs, key=[])(kernel)
        call = Call(tuner, (FakeTensor([0.0]),), {"grid": (1,)})
        target = TritonTarget(call, configs, {}, resolve_settings(environ={}).settings)
        assert target.method == tuner.whet_method()
    assert not device.timer_made()
