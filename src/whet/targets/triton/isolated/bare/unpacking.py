"""Blocks of a ipc_arguments copied into this process's device memory, without torch."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

from whet.measure.gpu.driver import CudaDriver
from whet.targets.triton.isolated import driver as sharing
from whet.targets.triton.isolated.ipc_arguments import ALIGNMENT, Block


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
        with sharing.opened(handle) as address:
            for block, start in wanted:
                sharing.copy(start, address + block.offset, block.size)
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
