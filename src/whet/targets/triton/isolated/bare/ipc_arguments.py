"""What a measuring process without torch is sent. Imports as little as that process does."""

from __future__ import annotations

from dataclasses import dataclass

from whet.targets.triton.isolated.ipc_arguments import Block


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
