"""A measuring process that imports neither torch nor Triton: it starts in a fraction of a second.

For calls that are plain: tensors and numbers, nothing around a launch, and a binary that needs
nothing beside them. Cubins are loaded and launched by the driver.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.core.timing import L2
from whet.measure.bench.protocol import Recovering, Verdict
from whet.measure.gpu import driver as cuda_driver
from whet.measure.gpu.devices import DriverCuda
from whet.measure.gpu.driver import CudaDriver, Parameters, driver_on
from whet.measure.gpu.timer import CudaTimer
from whet.targets.triton.isolated.ipc_arguments import (
    ALIGNMENT,
    Block,
    copy_on_device,
    opened_memory,
)
from whet.workers import stages


@dataclass(frozen=True)
class BareLaunch:
    """A binary, a grid and the kernel's parameters in order, each as its bytes; a number stands for
    the address of that tensor."""

    cubin: str
    name: str
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    parameters: tuple[bytes | int, ...]


@dataclass(frozen=True)
class BareIpcCall:
    """The tensors of a call: `places` has the block of each, and where in it the tensor begins."""

    device: int
    blocks: tuple[Block, ...]
    places: tuple[tuple[int, int], ...]


def copied(driver: CudaDriver, blocks: Sequence[Block]) -> list[int]:
    """Where each block's first byte is, as aligned as the original."""
    starts = [_room_for(driver, block) for block in blocks]
    by_handle: dict[bytes, list[tuple[Block, int]]] = {}
    for block, start in zip(blocks, starts, strict=True):
        if block.handle is not None:
            by_handle.setdefault(block.handle, []).append((block, start))
        elif block.path:
            _read(driver, block, start)
    for handle, wanted in by_handle.items():
        with opened_memory(handle) as address:
            for block, start in wanted:
                copy_on_device(start, address + block.offset, block.size)
            driver.synchronize()
    return starts


def _room_for(driver: CudaDriver, block: Block) -> int:
    room = driver.allocate(block.size + block.lead + ALIGNMENT)
    return room + (-room) % ALIGNMENT + block.lead


def _read(driver: CudaDriver, block: Block, to: int) -> None:
    with (
        open(block.path, "rb") as file,
        # Not to be written to, but ctypes takes the address of nothing that could not be.
        mmap.mmap(file.fileno(), block.size, access=mmap.ACCESS_COPY) as content,
    ):
        first = ctypes.c_char.from_buffer(content)
        try:
            driver.upload(to, ctypes.addressof(first), block.size)
        finally:
            del first


def bare_timer(device: int, l2: L2, l2_bytes: int | None) -> CudaTimer:
    return CudaTimer(DriverCuda(device), l2=l2, l2_bytes=l2_bytes)


class BareLoader(Recovering):
    def __init__(self, ipc_call: BareIpcCall) -> None:
        stages.add("start", _age_s())
        self._driver = driver_on(ipc_call.device)
        with stages.stage("copy"):
            starts = copied(self._driver, ipc_call.blocks)
        self._addresses = [starts[block] + offset for block, offset in ipc_call.places]

    def load(self, config: Config, artifact: BareLaunch) -> BareLoaded:
        return BareLoaded(self._driver, artifact, self._addresses)

    def recover(self, problem: BaseException) -> bool:
        """A context that is gone shows when it is waited for."""
        traceback.clear_frames(problem.__traceback__)
        gc.collect()
        try:
            self._driver.synchronize()
        except Exception:
            return False
        return True


class BareLoaded:
    """One config, loaded and ready to be launched as Triton would."""

    compares = False

    def __init__(self, driver: CudaDriver, launch: BareLaunch, addresses: list[int]) -> None:
        self._driver = driver
        self._grid, self._threads, self._shared = launch.grid, launch.threads, launch.shared_bytes
        _allow("shared memory", launch.shared_bytes, driver.attribute(cuda_driver.SHARED_BYTES))
        self._parameters = Parameters(
            [
                addresses[one].to_bytes(8, "little") if isinstance(one, int) else one
                for one in launch.parameters
            ]
        )
        with open(launch.cubin, "rb") as file:
            self._module = driver.module(file.read())
        self._function = driver.function(self._module, launch.name)
        if launch.shared_bytes > cuda_driver.UNASKED_SHARED_BYTES:
            driver.allow_shared(self._function)
        _allow("threads", launch.threads, self._attribute(cuda_driver.MAX_THREADS))
        self.facts: Mapping[str, Value] = {
            "registers": self._attribute(cuda_driver.REGISTERS),
            "spills": self._attribute(cuda_driver.LOCAL_BYTES) // 4,
            "shared_bytes": launch.shared_bytes,
        }

    def repeat(self, n: int) -> None:
        """Queues the launches and waits for none, as a launch of Triton's does."""
        if 0 in self._grid:
            return
        for _ in range(n):
            self._driver.launch(
                self._function, self._grid, self._threads, self._shared, self._parameters
            )

    def check(self) -> Verdict:
        """There is nothing to compare with in a plain call; but it has run."""
        self.repeat(1)
        self._driver.synchronize()
        return Verdict(True)

    def close(self) -> None:
        # A context that is gone unloads nothing, and has said so to whom it concerns.
        with contextlib.suppress(RuntimeError):
            self._driver.unload(self._module)

    def _attribute(self, which: int) -> int:
        return self._driver.function_attribute(self._function, which)


def _allow(what: str, needed: int, most: int) -> None:
    """Refuses in Triton's own words."""
    if needed > most:
        raise ConfigFailure(
            Status.RESOURCES,
            f"out of resource: {what}, Required: {needed}, Hardware limit: {most}. "
            "Reducing block sizes or `num_stages` may help.",
        )


def _age_s() -> float:
    """Since this process was started."""
    with open("/proc/self/stat") as file:
        born = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - born / os.sysconf("SC_CLK_TCK")
