"""CUDA memory of one process, opened in another: the driver's own calls, by ctypes.

torch's way of sharing memory takes care of reference counts between two processes that both live
on. Here one of them may be killed at any moment, and only ever copies.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from functools import cache
from typing import Any

_LAZY_PEER_ACCESS = 1


class Handle(ctypes.Structure):
    """`CUipcMemHandle`, which is passed by value."""

    _fields_ = (("bytes", ctypes.c_ubyte * 64),)


class NotShared(Exception):
    """The driver does not share this memory: it was not made by `cuMemAlloc`, or a container
    stands between the two processes."""


def exported(address: int) -> tuple[bytes, int]:
    """A handle of the allocation around `address`, and how far into it that is."""
    library, base, handle = _library(), ctypes.c_uint64(), Handle()
    _check(
        library.cuMemGetAddressRange_v2(ctypes.byref(base), None, ctypes.c_uint64(address)),
        "cuMemGetAddressRange",
    )
    _check(library.cuIpcGetMemHandle(ctypes.byref(handle), base), "cuIpcGetMemHandle")
    return bytes(handle), address - base.value


@contextlib.contextmanager
def opened(handle: bytes) -> Iterator[int]:
    """The address of the allocation here. Whoever copies from it waits before leaving."""
    library, address = _library(), ctypes.c_uint64()
    _check(
        library.cuIpcOpenMemHandle_v2(
            ctypes.byref(address),
            Handle.from_buffer_copy(handle),
            ctypes.c_uint(_LAZY_PEER_ACCESS),
        ),
        "cuIpcOpenMemHandle",
    )
    try:
        yield int(address.value)
    finally:
        library.cuIpcCloseMemHandle(address)


def copy(to: int, source: int, size: int) -> None:
    """From one address on the device to another, queued on its default stream."""
    _check(
        _library().cuMemcpyDtoD_v2(
            ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size)
        ),
        "cuMemcpyDtoD",
    )


def _check(code: int, name: str) -> None:
    if code:
        raise NotShared(f"{name} failed with error {code}")


@cache
def _library() -> Any:
    try:
        library = ctypes.CDLL("libcuda.so.1")
        library.cuIpcOpenMemHandle_v2.argtypes = (
            ctypes.POINTER(ctypes.c_uint64),
            Handle,
            ctypes.c_uint,
        )
    except (OSError, AttributeError) as error:
        raise NotShared(str(error)) from None
    return library
