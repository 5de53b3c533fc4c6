"""Which multiprocessors a grid's blocks go to: what a timer leaves to chance, made visible.

places = Places(driver_on(0))
places.note(address)                       # queues it: one int32 for each multiprocessor
"""

from __future__ import annotations

from whet.measure.gpu.driver import MULTIPROCESSORS, CudaDriver, Parameters, word

# So many that a multiprocessor takes a second block only once every other has one.
THREADS = 1024

# Every block writes down where it is, and stays until all have begun.
PTX = b"""
.version 6.0
.target sm_70
.address_size 64

.visible .entry places(.param .u64 target)
{
    .reg .pred %again;
    .reg .b32 %block, %here;
    .reg .b64 %to, %offset, %start, %passed;

    ld.param.u64 %to, [target];
    cvta.to.global.u64 %to, %to;
    mov.u32 %block, %ctaid.x;
    mov.u32 %here, %smid;
    mul.wide.u32 %offset, %block, 4;
    add.u64 %to, %to, %offset;
    st.global.u32 [%to], %here;
    mov.u64 %start, %clock64;
spin:
    mov.u64 %passed, %clock64;
    sub.s64 %passed, %passed, %start;
    setp.lt.s64 %again, %passed, 4000;
    @%again bra spin;
    ret;
}
"""


class Places:
    """Its grid fits at once, so that it finds the place without moving it."""

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._kernel = driver.function(driver.module(PTX), "places")
        self.blocks = driver.attribute(MULTIPROCESSORS)

    def note(self, address: int, stream: int | None = None) -> None:
        noted = Parameters([word(address)])
        self._driver.launch(self._kernel, (self.blocks, 1, 1), THREADS, 0, noted, stream)
