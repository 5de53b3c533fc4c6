"""What replaces the contents of an NVIDIA GPU's caches before a launch.

Data goes by reading as many bytes as the L2 holds. That leaves the code: a multiprocessor keeps
what it has run lately, and a kernel that is timed over and over, or in turn with a few others,
finds its instructions there, which it does not among the kernels of a program. On an H200 that is
0.1 to 0.25 µs, the more the longer the code, so that of two short kernels the longer one would look
better than it is.
"""

from __future__ import annotations

from ctypes import c_void_p

from whet.measure.gpu import driver as cuda_driver
from whet.measure.gpu.driver import CudaDriver, Parameters, word
from whet.measure.gpu.ptx import FLUSH_PTX, code_ptx, code_threads
from whet.workers.stages import stage

# Threads that fill every multiprocessor: so many loads are under way that memory is at its limit.
FLUSH_THREADS = 512
FLUSH_BLOCKS_EACH = 4
FLUSH_BYTES_A_LOAD = 16

# More than a multiprocessor's largest cache of instructions, in parts that are fetched side by
# side.
CODE_BYTES = 160 << 10
CODE_WARPS = 16
CODE_BLOCKS_EACH = 1


class Clearing:
    """On the device of `driver`; `target` is the address of a few bytes that it may write."""

    def __init__(self, driver: CudaDriver, target: int) -> None:
        self._driver = driver
        self._target = target
        multiprocessors = driver.attribute(cuda_driver.MULTIPROCESSORS)
        self._flush_grid = (FLUSH_BLOCKS_EACH * multiprocessors, 1, 1)
        self._code_grid = (CODE_BLOCKS_EACH * multiprocessors, 1, 1)
        with stage("kernels"):
            self._flush = driver.function(driver.module(FLUSH_PTX), "whet_flush")
            module = driver.module_as_written(code_ptx(CODE_BYTES, CODE_WARPS))
            self._code: c_void_p = driver.function(module, "whet_code")
        self._written = Parameters([word(target)])

    def reading(self, address: int, size: int) -> Parameters:
        """Of a flush that reads `size` bytes from there on."""
        loads = max(1, size // FLUSH_BYTES_A_LOAD)
        return Parameters([word(address), word(loads), word(self._target)])

    def clear(self, reading: Parameters, stream: int | None = None) -> None:
        """Queues both."""
        launch = self._driver.launch
        launch(self._flush, self._flush_grid, FLUSH_THREADS, 0, reading, stream)
        launch(self._code, self._code_grid, code_threads(CODE_WARPS), 0, self._written, stream)
