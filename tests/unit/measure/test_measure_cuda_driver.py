"""The driver API by ctypes, on a library that is compiled against CUDA's own header."""

import ctypes
import struct
import subprocess

import pytest

from whet.core.status import Status
from whet.measure.bench.protocol import from_exception
from whet.measure.gpu import driver as cuda_driver
from whet.measure.gpu.clearing import (
    CLEARING_PTX,
    CODE_BYTES,
    CODE_WARPS,
    FLUSH_BLOCKS_EACH,
    FLUSH_THREADS,
    MOVE_BLOCKS_EACH,
    MOVE_THREADS,
    PTX,
    code_ptx,
)
from whet.measure.gpu.devices import DriverCuda
from whet.measure.gpu.driver import CudaError, Parameters, driver_on
from whet.measure.gpu.timer import CudaTimer
from whet.testing import fake_cuda, places

pytestmark = pytest.mark.skipif(
    fake_cuda.header_folder() is None, reason="needs Triton's cuda.h and a C compiler"
)


@pytest.fixture
def driver(log):
    return driver_on(0)


def kernel(driver, name="kernel"):
    return driver.function(driver.module(b"\x7fELF"), name)


@pytest.mark.medium
def test_parameters_arrive_in_order_eight_bytes_each(driver, log, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_PARAMETERS", "3")
    words = [(1 << 47).to_bytes(8, "little"), b"\x07", b"\xff\xff\xff\xff"]
    driver.launch(kernel(driver), (3, 2, 1), 128, 4096, Parameters(words))
    assert log()[-1] == "cuLaunchKernel kernel 3,2,1 128 4096 800000000000 7 ffffffff"


@pytest.mark.medium
def test_a_parameter_can_be_set_again(driver, log, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_PARAMETERS", "2")
    parameters = Parameters([b"\x01", b"\x02"])
    parameters.set(1, b"\x09")
    driver.launch(kernel(driver), (1, 1, 1), 32, 0, parameters)
    assert log()[-1].endswith(" 1 9")


def test_an_error_is_told_in_the_drivers_words(driver):
    with pytest.raises(CudaError, match=r"CUDA error: out of memory \(cuMemAlloc_v2\)") as caught:
        driver.allocate(1 << 40)
    failure = from_exception(caught.value)
    assert failure.status is Status.RESOURCES
    assert not failure.spoils


@pytest.mark.medium
def test_an_illegal_access_is_known_when_it_is_waited_for(log, monkeypatch, tmp_path):
    """In a copy of the library, since what is spoilt stays so."""
    with fake_cuda.in_place(fake_cuda.built(tmp_path)):
        monkeypatch.setenv("FAKE_CUDA_FAIL", "kernel@1")
        driver = driver_on(0)
        driver.launch(kernel(driver), (1, 1, 1), 32, 0, Parameters([b""]))
        with pytest.raises(CudaError, match="illegal memory access") as caught:
            driver.synchronize()
        assert from_exception(caught.value).spoils


@pytest.fixture
def no_library(monkeypatch):
    def load(name, *rest, **options):
        raise OSError(f"{name}: cannot open shared object file")

    cuda_driver.compiles_ptx.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", load)
    yield
    cuda_driver.compiles_ptx.cache_clear()


@pytest.mark.parametrize("there", [True, False])
def test_the_compiler_is_found_beside_the_driver(no_library, monkeypatch, tmp_path, there):
    if there:
        (tmp_path / "libnvidia-ptxjitcompiler.so.1").touch()
    monkeypatch.setattr(cuda_driver, "_folders_of", lambda name: {tmp_path})
    assert cuda_driver.compiles_ptx() is there


@pytest.mark.medium
def test_where_the_driver_lies_is_known_once_it_is_loaded(log, library):
    driver_on(0)
    assert library.parent in cuda_driver._folders_of("libcuda.so")


def test_without_a_driver_it_says_so(monkeypatch, log):
    monkeypatch.setenv("FAKE_CUDA_FAIL", "cuInit")
    with pytest.raises(CudaError, match="no CUDA-capable device"):
        driver_on(0)


def test_memory_is_cleared_and_filled_from_the_host(driver):
    there = driver.allocate(16)
    driver.clear(there, 16)
    source = ctypes.create_string_buffer(b"abcd")
    driver.upload(there + 4, ctypes.addressof(source), 4)
    assert ctypes.string_at(there, 16) == b"\0\0\0\0abcd" + bytes(8)
    driver.free(there)


def test_shared_memory_is_asked_for_as_triton_does(driver, log):
    driver.allow_shared(kernel(driver))
    asked = f"cuFuncSetAttribute kernel dynamic {232448 - 16}"
    assert log()[-2:] == ["cuFuncSetCacheConfig shared", asked]


def test_a_device_says_what_the_timer_needs_to_know(log):
    api = DriverCuda(0)
    assert (api.l2_bytes, api.clock_khz) == (1 << 20, 1_000_000)


def test_a_sleep_takes_as_many_cycles_as_it_is_told(log):
    api = DriverCuda(0)
    start, end = api.event(), api.event()
    start.record()
    api.sleep(5_000_000)
    end.record()
    assert not end.query()
    api.synchronize()
    assert end.query()
    assert start.elapsed_ms(end) == pytest.approx(5.0, rel=0.01)


def test_a_flush_reads_a_buffer_that_is_given_back(log):
    api = DriverCuda(0)
    api.flush(1 << 20)
    api.flush(1 << 20)
    assert log().count(f"cuMemAlloc {1 << 20}") == 1
    api.release()
    api.flush(1 << 20)
    assert log().count(f"cuMemAlloc {1 << 20}") == 2


def test_the_timer_reads_launches_off_it(driver, log):
    class Run:
        def __init__(self, blocks):
            self.blocks, self.function = blocks, kernel(driver)

        def repeat(self, n):
            for _ in range(n):
                driver.launch(self.function, (self.blocks, 1, 1), 32, 0, Parameters([b""]))

    timer = CudaTimer(DriverCuda(0))
    run = Run(7)
    reading = timer.measure(run, 3, timer.warm(run))
    assert reading.samples == pytest.approx((7000.0,) * 3, rel=0.01)
    assert (reading.timer, reading.l2, reading.quality) == ("cuda+fresh", "cold", "clean")
    several = [Run(2), Run(3)]
    turn = timer.turn(several, timer.warm_all(several))
    assert [one.samples[0] for one in turn] == pytest.approx([2000.0, 3000.0], rel=0.01)


@pytest.mark.parametrize(("size", "kernels"), [(1 << 20, 2), (0, 1)])
def test_a_flush_clears_data_and_code_or_moves(size, kernels, log):
    api = DriverCuda(0)
    api.flush(size)
    start, end = api.event(), api.event()
    start.record()
    api.flush(size)
    end.record()
    api.synchronize()
    event = 0.5e-3
    assert start.elapsed_ms(end) == pytest.approx(kernels * 1e-3 + event)
    # What sleeps and fills, what reads and moves, the code.
    assert log().count("cuModuleLoadData ptx") == 3


def test_a_grid_that_says_where_it_is_has_a_block_for_each_multiprocessor(driver, log, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_PARAMETERS", "1")
    noting = places.Places(driver)
    noting.note(4096)
    assert log()[-1] == f"cuLaunchKernel places {noting.blocks},1,1 1024 0 1000"


def test_blocks_wait_wherever_the_place_has_to_move():
    threads = 2048  # that a multiprocessor holds; on some GPUs fewer
    assert threads < FLUSH_BLOCKS_EACH * FLUSH_THREADS
    assert threads < MOVE_BLOCKS_EACH * MOVE_THREADS


@pytest.fixture
def compiled(tmp_path):
    headers = fake_cuda.header_folder()
    ptxas = headers.parent / "bin" / "ptxas"
    if not ptxas.exists():
        pytest.skip("Triton has no ptxas here")

    def compiled(ptx, architecture, *options):
        text, binary = tmp_path / "kernels.ptx", tmp_path / "kernels.cubin"
        text.write_bytes(ptx)
        command = [ptxas, "-arch", architecture, *options, text, "-o", binary]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return binary.read_bytes()

    return compiled


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    "ptx", [PTX, CLEARING_PTX, places.PTX], ids=["waiting", "clearing", "places"]
)
def test_the_timers_kernels_are_valid_for(ptx, architecture, compiled):
    compiled(ptx, architecture)


@pytest.mark.medium
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_code_is_as_long_as_it_is_asked_for(architecture, compiled):
    binary = compiled(code_ptx(CODE_BYTES, CODE_WARPS), architecture, "-O0")
    text = code_size(binary)
    assert CODE_BYTES <= text <= CODE_BYTES + 4096


def code_size(binary):
    """Bytes of the sections `.text…` of an ELF file of 64 bits."""
    (sections,) = struct.unpack_from("<Q", binary, 40)
    count, names = struct.unpack_from("<HH", binary, 60)
    found = [struct.unpack_from("<IIQQQQ", binary, sections + 64 * i) for i in range(count)]
    text = found[names][4]
    return sum(
        size for name, _, _, _, _, size in found if binary[text + name :].startswith(b".text")
    )
