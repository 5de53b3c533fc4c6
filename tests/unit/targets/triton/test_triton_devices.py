"""Triton kernels on several devices: a process for each, on copies of the arguments."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import os

import isolated_parts as parts
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import torch
import triton
import triton.language as tl

import whet
from whet.core.errors import UsageError
from whet.engine import log
from whet.engine.executors.current import using
from whet.engine.executors.processes import ProcessPerDevice, ProcessSeat
from whet.targets.triton import device
from whet.targets.triton.warming import warmup as warmup_module
from whet.testing.fake_triton import fake_driver

N = 8
BLOCKS = (512, 1024, 2048, 4096, 8192)

pytestmark = [pytest.mark.medium, pytest.mark.usefixtures("warm_binaries")]


@pytest.fixture(autouse=True)
def diary(monkeypatch, tmp_path):
    monkeypatch.setenv("ISOLATED_DIARY", str(tmp_path / "diary"))
    monkeypatch.setenv("ISOLATED_HERE", str(os.getpid()))
    monkeypatch.setattr(log, "_said", set())


@pytest.fixture
def fresh_driver(fresh_workers):
    """The processes of the devices are new interpreters, as they are for users."""
    with fake_driver() as fake:
        fake.on_launch = lambda name, args: parts.launched(fake, name, args)
        yield fake


@pytest.fixture
def driver(fresh_driver, forked_workers):
    """They have torch and Triton imported, which is what takes long."""
    return fresh_driver


class FarSeat(ProcessSeat):
    """As if it were another machine's: nothing of this one can be reached from it."""

    remote = True


class FarDevices(ProcessPerDevice):
    def __init__(self, names):
        super().__init__(names, lambda name: {"TRITON_CACHE_DIR": "/nonexistent/whet"})
        self._seats = tuple(FarSeat(name, {}) for name in names)


def tuned_copy(**options):
    """Defined in a closure, so that no other process can import it."""

    @triton.jit
    def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

    configs = [triton.Config({"BLOCK": block}) for block in BLOCKS]
    kernel = whet.autotune(configs=configs, key=["n"], **options)(copy)
    kernel.whet_timer = parts.by_block
    return kernel


def called(kernel):
    x, y = torch.arange(float(N)), torch.zeros(N)
    kernel[(1,)](x, y, N)
    return x, y


def launched():
    """Blocks by process, in other processes than this one."""
    found = {}
    for entry in parts.entries():
        if entry["pid"] != os.getpid() and "grid" in entry:
            found.setdefault(entry["pid"], set()).add(entry["block"])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("executor", [ProcessPerDevice, FarDevices])
def test_a_kernel_is_measured_on_both_devices_and_the_best_is_run_here(driver, cold, executor):
    made = executor(["0", "1"]) if executor is FarDevices else executor(["0", "1"], lambda n: {})
    kernel = tuned_copy()
    with made, using(made):
        x, y = called(kernel)
    assert torch.equal(x, y)
    by_process = launched()
    assert len(by_process) == 2
    assert set.union(*by_process.values()) == set(BLOCKS)
    assert kernel.best_config.kwargs == {"BLOCK": max(BLOCKS)}
    assert cold.measured() == set(BLOCKS)


def test_what_cannot_be_sent_ends_the_tuning_with_the_reason(driver, cold):
    kernel = tuned_copy()
    kernel.fn.add_pre_run_hook(lambda *args, **keywords: None)
    made = ProcessPerDevice(["0", "1"], lambda name: {})
    with made, using(made), pytest.raises(UsageError, match="on several devices: the kernel has"):
        called(kernel)


def test_a_device_is_seen_by_its_number_in_this_process(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 6,7")
    assert device.device_environment("1") == {"CUDA_VISIBLE_DEVICES": "6"}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert device.device_environment("1") == {"CUDA_VISIBLE_DEVICES": "1"}


@pytest.mark.slow
def test_a_warm_up_measures_on_all_devices(fresh_driver, cold, monkeypatch):
    monkeypatch.setattr(warmup_module, "device_names", lambda: ("0", "1"))
    monkeypatch.setattr(warmup_module, "device_environment", lambda name: {})
    kernel = tuned_copy()
    done = whet.warmup(lambda: called(kernel), devices="all", progress=False)
    assert done.complete
    assert [one.config["BLOCK"] for one in done.kernels] == [max(BLOCKS)]
    assert len(launched()) == 2


def test_a_warm_up_on_devices_that_are_not_there_says_so(driver, cold, monkeypatch):
    monkeypatch.setattr(warmup_module, "device_names", lambda: ("0", "1"))
    with pytest.raises(UsageError, match="no device 2; this machine has 0, 1"):
        whet.warmup(lambda: None, devices=[2], progress=False)
