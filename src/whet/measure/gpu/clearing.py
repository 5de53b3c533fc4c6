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


_INSTRUCTION_BYTES = 16
_WARP_THREADS = 32

_TARGET = """
.version 6.0
.target sm_70
.address_size 64
"""

# `sleep` counts cycles of the same clock as torch's.
PTX = (
    _TARGET
    + """
.visible .entry whet_sleep(.param .u64 cycles)
{
    .reg .pred %again;
    .reg .b64 %wanted, %start, %passed;

    ld.param.u64 %wanted, [cycles];
    mov.u64 %start, %clock64;
spin:
    mov.u64 %passed, %clock64;
    sub.s64 %passed, %passed, %start;
    setp.lt.s64 %again, %passed, %wanted;
    @%again bra spin;
    ret;
}

.visible .entry whet_fill(.param .u64 target)
{
    .reg .b32 %zero;
    .reg .b64 %to;

    ld.param.u64 %to, [target];
    cvta.to.global.u64 %to, %to;
    mov.u32 %zero, 0;
    st.global.u32 [%to], %zero;
    ret;
}
"""
).encode()

# `flush` reads sixteen bytes a thread and turn, and stores what it found only where that is a value
# that zeros cannot give. `move` keeps every block for up to 512 cycles that nobody can foretell:
# its first warp waits, the others end at once.
CLEARING_PTX = (
    _TARGET
    + """
.visible .entry whet_flush(.param .u64 source, .param .u64 count, .param .u64 target)
{
    .reg .pred %done;
    .reg .b32 %block, %blocks, %thread, %threads, %a, %b, %c, %d, %total;
    .reg .b64 %from, %to, %left, %place, %step, %at;

    ld.param.u64 %from, [source];
    ld.param.u64 %left, [count];
    ld.param.u64 %to, [target];
    cvta.to.global.u64 %from, %from;
    cvta.to.global.u64 %to, %to;
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %thread, %tid.x;
    mov.u32 %threads, %ntid.x;
    mul.wide.u32 %place, %block, %threads;
    cvt.u64.u32 %at, %thread;
    add.u64 %place, %place, %at;
    mul.wide.u32 %step, %blocks, %threads;
    mov.u32 %total, 0;
read:
    setp.ge.u64 %done, %place, %left;
    @%done bra keep;
    shl.b64 %at, %place, 4;
    add.u64 %at, %from, %at;
    ld.global.v4.u32 {%a, %b, %c, %d}, [%at];
    or.b32 %total, %total, %a;
    or.b32 %total, %total, %b;
    or.b32 %total, %total, %c;
    or.b32 %total, %total, %d;
    add.u64 %place, %place, %step;
    bra read;
keep:
    setp.eq.u32 %done, %total, 0;
    @%done bra end;
    st.global.u32 [%to], %total;
end:
    ret;
}

.visible .entry whet_move(.param .u64 target)
{
    .reg .pred %again;
    .reg .b32 %thread, %block, %mixed;
    .reg .b64 %wanted, %start, %passed;

    mov.u32 %thread, %tid.x;
    setp.ge.u32 %again, %thread, 32;
    @%again bra end;
    mov.u64 %start, %clock64;
    mov.u32 %block, %ctaid.x;
    cvt.u32.u64 %mixed, %start;
    add.u32 %mixed, %mixed, %block;
    mul.lo.u32 %mixed, %mixed, 0x9e3779b1;
    shr.u32 %mixed, %mixed, 23;
    cvt.u64.u32 %wanted, %mixed;
spin:
    mov.u64 %passed, %clock64;
    sub.s64 %passed, %passed, %start;
    setp.lt.s64 %again, %passed, %wanted;
    @%again bra spin;
end:
    ret;
}
"""
).encode()


def code_ptx(code_bytes: int, warps: int) -> bytes:
    """A kernel `whet_code` of so many bytes of instructions, every warp of a block with as many
    of its own. Compiled without optimisation, each line of them is one instruction.

    What they calculate depends on the number of threads, so that nothing can be left out; it is
    stored only where it is a value that it hardly ever is.
    """
    each = code_bytes // _INSTRUCTION_BYTES // warps
    parts = [_TARGET, _CODE_HEAD]
    parts += [f"setp.eq.u32 %here, %warp, {warp};\n@%here bra part{warp};" for warp in range(warps)]
    for warp in range(warps):
        parts.append(f"part{warp}:")
        first = warp * each
        parts += [f"mad.lo.u32 %value, %value, %factor, {first + i};" for i in range(each)]
        parts.append("bra keep;")
    parts.append(_CODE_TAIL)
    return "\n".join(parts).encode()


def code_threads(warps: int) -> int:
    return warps * _WARP_THREADS


_CODE_HEAD = """
.visible .entry whet_code(.param .u64 target)
{
    .reg .pred %here;
    .reg .b32 %warp, %value, %factor;
    .reg .b64 %to;

    ld.param.u64 %to, [target];
    cvta.to.global.u64 %to, %to;
    mov.u32 %value, %tid.x;
    shr.u32 %warp, %value, 5;
    mov.u32 %factor, %ntid.x;
"""

_CODE_TAIL = """
keep:
    setp.ne.u32 %here, %value, 0x77686574;
    @%here bra end;
    st.global.u32 [%to], %value;
end:
    ret;
}
"""
