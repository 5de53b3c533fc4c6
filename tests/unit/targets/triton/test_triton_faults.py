"""Configs that cost this process its device, and devices that are nearly full."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import gc
import weakref

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.engine import guard
from whet.engine.guard import DeviceLostError
from whet.testing.fake_triton import FakeTensor, fake_driver, told

N = 4


@pytest.fixture
def driver():
    with fake_driver() as fake:
        yield fake


@pytest.fixture(autouse=True)
def _no_device_is_lost(monkeypatch):
    monkeypatch.setattr(guard, "_lost", {})


def tuned_increment(*blocks, **options):
    """A new kernel each time, as a new process has one."""

    @triton.jit
    def increment(x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(x + offsets, value + 1, mask=offsets < n)

    configs = [triton.Config({"BLOCK": block}) for block in blocks or (128, 256)]
    kernel = whet.autotune(configs=configs, key=["n"], **options)(increment)
    kernel.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    return kernel


def increments(name, arguments):
    x = arguments[0]
    x.values = [value + 1 for value in x.values]


class Device:
    """Once a config of `poison` has been launched, nothing works."""

    def __init__(self, poison):
        self.poison = poison
        self.lost = False

    def use(self):
        if self.lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def launch(self, name, arguments):
        self.lost = self.lost or arguments[-1] == self.poison
        self.use()
        increments(name, arguments)


class OnDevice(FakeTensor):
    def __init__(self, device):
        super().__init__([1.0] * N)
        self._on = device

    def clone(self):
        self._on.use()
        return super().clone()

    def copy_(self, other):
        self._on.use()
        super().copy_(other)


@pytest.mark.medium
def test_a_lost_device_is_said_and_the_next_process_goes_round_it(driver, cold, monkeypatch):
    device = Device(poison=256)
    driver.on_launch = device.launch
    said = []
    for _ in range(3):  # the culprit may have been looked at with others first
        kernel, x = tuned_increment(128, 256, 512), OnDevice(device)
        try:
            kernel[(1,)](x, N)
        except DeviceLostError as error:
            said.append(str(error))
            device.lost = False
            monkeypatch.setattr(guard, "_lost", {})
    assert len(said) in (1, 2)
    assert all("[BLOCK=256" in text and "illegal memory access" in text for text in said)
    assert cold.statuses()[256] == "run_error"
    assert cold.measured() == {128, 512}
    assert kernel.best_config.kwargs == {"BLOCK": 128}
    assert x.values == [2.0] * N


class Watched(FakeTensor):
    """Keeps an eye on its copies."""

    def __init__(self, values, nbytes=16):
        super().__init__(values)
        self.nbytes = nbytes
        self.copies = []

    def clone(self):
        copy = super().clone()
        self.copies.append(weakref.ref(copy))
        return copy


@pytest.mark.slow
@pytest.mark.parametrize("check", [None, "agree"])
def test_nothing_that_was_copied_for_a_tuning_outlives_it(driver, check):
    driver.on_launch = increments
    x = Watched([1.0] * N)
    kernel = tuned_increment(check=check)
    kernel[(1,)](x, N)
    gc.collect()
    assert x.copies
    assert [copy for copy in x.copies if copy() is not None] == []
    assert x.values == [2.0] * N


@pytest.mark.medium
def test_a_copy_that_did_not_fit_is_made_once_caches_are_emptied(driver, recwarn):
    class Tight(FakeTensor):
        refusals = 1

        def clone(self):
            if self.refusals:
                self.refusals -= 1
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return super().clone()

    driver.on_launch = increments
    x = Tight([1.0] * N)
    tuned_increment()[(1,)](x, N)
    assert x.values == [2.0] * N
    assert [w for w in recwarn if "no memory" in str(w.message)] == []


@pytest.mark.medium
def test_copies_keep_to_what_a_tuning_may_take_of_the_device(driver, monkeypatch):
    monkeypatch.setenv("WHET_DEVICE_MEMORY", "8")
    x = Watched([1.0] * N, nbytes=16)
    with pytest.warns(RuntimeWarning, match="not enough memory to save 'x'"):
        tuned_increment()[(1,)](x, N)
    assert x.copies == []


@pytest.mark.medium
def test_without_memory_to_compare_with_nothing_is_compared_and_that_is_said(driver, cold):
    class Full(Watched):
        def clone(self):
            if self.copies:
                raise MemoryError
            return super().clone()

    driver.on_launch = increments
    with pytest.warns(RuntimeWarning, match="not enough memory to copy 'x' for comparison"):
        tuned_increment(check="agree")[(1,)](Full([1.0] * N), N)
    assert cold.measured() == {128, 256}
