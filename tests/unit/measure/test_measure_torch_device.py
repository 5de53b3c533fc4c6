"""Torch's side of clearing: through the driver where it can, by torch where it cannot."""

import contextlib
from types import SimpleNamespace

import pytest

from whet.measure.gpu import devices
from whet.measure.gpu.clearing import Clearing
from whet.measure.gpu.devices import TorchCuda
from whet.measure.gpu.timer import CudaTimer
from whet.testing import fake_cuda

pytestmark = pytest.mark.skipif(
    fake_cuda.header_folder() is None, reason="needs Triton's cuda.h and a C compiler"
)


class Tensor:
    def __init__(self, *shape, **place):
        self.shape = shape

    def data_ptr(self):
        return 4096


class Torch:
    """What `TorchCuda` asks of torch, with a device that has nothing to say."""

    float32 = "float32"

    def __init__(self, hip=None):
        self.version = SimpleNamespace(hip=hip)
        self.sums = 0
        stream = SimpleNamespace(cuda_stream=0)
        properties = SimpleNamespace(L2_cache_size=1 << 20, clock_rate=1_000_000)
        self.cuda = SimpleNamespace(
            current_device=lambda: 0,
            get_device_properties=lambda device: properties,
            device=lambda device: contextlib.nullcontext(),
            current_stream=lambda: stream,
            Event=lambda enable_timing: SimpleNamespace(query=lambda: True),
        )

    def device(self, kind, index):
        return kind, index

    def inference_mode(self, on):
        return contextlib.nullcontext()

    def zeros(self, *shape, **place):
        return Tensor(*shape, **place)

    def sum(self, tensor, dim, out):
        self.sums += 1


def flushed(monkeypatch, torch, times=2, size=1 << 20):
    monkeypatch.setattr(devices, "_torch", lambda: torch)
    api = TorchCuda()
    name = CudaTimer(api).name
    with api.current():
        for _ in range(times):
            api.flush(size)
    return api, name


@pytest.mark.medium
def test_the_driver_clears_data_and_code_for_torch_as_well(monkeypatch, log):
    torch = Torch()
    api, name = flushed(monkeypatch, torch)
    assert api.fresh
    assert name == CudaTimer(api).name == "cuda+fresh"
    assert log().count("cuModuleLoadData ptx") == 2
    assert torch.sums == 0


def test_with_a_warm_l2_only_the_place_moves(monkeypatch, log):
    torch, done = Torch(), []
    monkeypatch.setattr(Clearing, "clear", lambda self, *_: done.append("clear"))
    monkeypatch.setattr(Clearing, "move", lambda self, *_: done.append("move"))
    api, _ = flushed(monkeypatch, torch, size=0)
    assert done == ["move", "move"]
    assert CudaTimer(api, l2="warm").name == "cuda+fresh"
    assert torch.sums == 0


def test_nothing_is_compiled_before_the_first_flush(monkeypatch, log):
    flushed(monkeypatch, Torch(), times=0)
    assert log() == []


def test_a_driver_that_may_not_compile_leaves_it_to_torch(monkeypatch, log):
    monkeypatch.setenv("CUDA_DISABLE_PTX_JIT", "1")
    torch = Torch()
    _, name = flushed(monkeypatch, torch)
    assert name == "cuda"
    assert torch.sums == 2
    assert log() == []


def test_a_driver_that_fails_to_compile_is_named_and_leaves_it_to_torch(monkeypatch, log):
    monkeypatch.setenv("FAKE_CUDA_FAIL", "cuModuleLoadDataEx")
    torch = Torch()
    with pytest.warns(RuntimeWarning, match=r"do not load .*cuModuleLoadDataEx"):
        api, _ = flushed(monkeypatch, torch)
    assert not api.fresh
    assert CudaTimer(api).name == "cuda"
    assert torch.sums == 2


def test_on_hip_it_is_torch_that_clears(monkeypatch, log):
    torch = Torch(hip="6.4")
    api, name = flushed(monkeypatch, torch)
    assert name == "cuda"
    assert torch.sums == 2
    api.flush(0)
    assert torch.sums == 2
    assert log() == []


def test_released_memory_is_not_read_again(monkeypatch, log):
    api, _ = flushed(monkeypatch, Torch())
    api.release()
    kept = set(api._readings)
    with api.current():
        api.flush(1 << 20)
    assert kept == set()
    assert set(api._readings) == {1 << 20}
