"""What an NVIDIA GPU runs before a launch, so that it finds nothing of the kernels before it.

Three things last from one kernel to the next, and a kernel that is timed over and over, or in turn
with a few others, meets them otherwise than among the kernels of a program:

- Data in the L2. It goes by reading as many bytes as the L2 holds.
- Code: a multiprocessor keeps what it has run lately. On an H200 that is worth 0.1 to 0.25 µs, the
  more the longer the code, so that of two short kernels the longer one looks better than it is.
- The place where a grid begins. Blocks are dealt out group by group of multiprocessors, and which
  group comes first is left from the last grid that had more blocks than fit at once. Until the
  next of those it stays, and a kernel that fills the device about once can be 10 % faster in one
  place than in another, all through a process. So a grid of more blocks than fit, which end in an
  order that is different each time, goes before every launch.
"""

from __future__ import annotations

from ctypes import c_void_p

from whet.measure.gpu import driver as cuda_driver
from whet.measure.gpu.driver import CudaDriver, Parameters, word
from whet.measure.gpu.ptx import CLEARING_PTX, code_ptx, code_threads
from whet.workers.stages import stage

# Four such blocks fill a multiprocessor, and so many loads are under way that memory is at its
# limit. With two more for each, all sixteen places of an H200 came up about as often, whichever
# was before.
FLUSH_THREADS = 512
FLUSH_BLOCKS_EACH = 6
BYTES_A_LOAD = 16

# The same without memory: two fill a multiprocessor.
MOVE_THREADS = 1024
MOVE_BLOCKS_EACH = 4

# More than a multiprocessor's largest cache of instructions, in parts that are fetched side by
# side. On an H200 readings no longer grow from 96 kB on; caches of 128 kB are known.
CODE_BYTES = 160 << 10
CODE_WARPS = 16


class Clearing:
    """On the device of `driver`; `target` is the address of a few bytes that it may write."""

    def __init__(self, driver: CudaDriver, target: int) -> None:
        self._driver = driver
        self._target = target
        self._multiprocessors = driver.attribute(cuda_driver.MULTIPROCESSORS)
        with stage("kernels"):
            module = driver.module(CLEARING_PTX)
            self._flush = driver.function(module, "whet_flush")
            self._move = driver.function(module, "whet_move")
            module = driver.module_as_written(code_ptx(CODE_BYTES, CODE_WARPS))
            self._code = driver.function(module, "whet_code")
        self._written = Parameters([word(target)])

    def reading(self, address: int, size: int) -> Parameters:
        """Of a flush that reads `size` bytes from there on, and none beyond."""
        return Parameters([word(address), word(size // BYTES_A_LOAD), word(self._target)])

    def clear(self, reading: Parameters, stream: int | None = None) -> None:
        """Data, code and place."""
        self._launch(self._flush, FLUSH_BLOCKS_EACH, FLUSH_THREADS, reading, stream)
        self.forget_code(stream)

    def forget_code(self, stream: int | None = None) -> None:
        """The code alone: one block each fits at once and leaves the place where it is."""
        self._launch(self._code, 1, code_threads(CODE_WARPS), self._written, stream)

    def move(self, stream: int | None = None) -> None:
        """The place alone."""
        self._launch(self._move, MOVE_BLOCKS_EACH, MOVE_THREADS, self._written, stream)

    def _launch(
        self, kernel: c_void_p, each: int, threads: int, given: Parameters, stream: int | None
    ) -> None:
        grid = (each * self._multiprocessors, 1, 1)
        self._driver.launch(kernel, grid, threads, 0, given, stream)
