"""CUDA's driver API by ctypes: what it takes to run a kernel without torch.

    cuda = driver_on(0)                            # its context is this thread's current one
    module = cuda.module(cubin)
    cuda.launch(cuda.function(module, "add"), (16, 1, 1), 128, 0, parameters)

Every call raises `CudaError` with the driver's own words where it fails.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from whet.workers.stages import stage

NOT_READY = 600

# Attributes of a device.
SHARED_BYTES = 97  # what a block may ask for
CLOCK_KHZ = 13
MULTIPROCESSORS = 16
L2_BYTES = 38

# Attributes of a function.
MAX_THREADS = 0
STATIC_SHARED_BYTES = 1
LOCAL_BYTES = 3
REGISTERS = 4
_DYNAMIC_SHARED_BYTES = 8
_PREFER_SHARED = 1

# Options of the compiler of PTX.
_OPTIMISATION_LEVEL = 7

# Beyond this a function has to ask for shared memory before it is launched with it.
UNASKED_SHARED_BYTES = 48 << 10

_BUS_ID_LENGTH = 32

# What compiles PTX is a library of its own, which an image may lack, and a user may forbid it.
_COMPILER = "libnvidia-ptxjitcompiler.so.1"
_FORBIDDING = ("CUDA_DISABLE_PTX_JIT", "CUDA_DISABLE_JIT")

_address, _handle = POINTER(c_uint64), POINTER(c_void_p)

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceGetPCIBusId": (c_char_p, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (_handle, c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemAlloc_v2": (_address, c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemcpyHtoD_v2": (c_uint64, c_void_p, c_size_t),
    "cuMemsetD8_v2": (c_uint64, ctypes.c_ubyte, c_size_t),
    "cuModuleLoadData": (_handle, c_void_p),
    "cuModuleLoadDataEx": (_handle, c_void_p, c_uint, POINTER(c_int), _handle),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (_handle, c_void_p, c_char_p),
    "cuFuncGetAttribute": (POINTER(c_int), c_int, c_void_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuFuncSetCacheConfig": (c_void_p, c_int),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
    "cuEventCreate": (_handle, c_uint),
    "cuEventDestroy_v2": (c_void_p,),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventQuery": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
}


class CudaError(RuntimeError):
    """`CUDA error: an illegal memory access was encountered (cuCtxSynchronize)`"""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class Parameters:
    """Of a kernel, in memory that stays where it is: eight bytes each, of which the driver reads as
    many as the kernel declares."""

    def __init__(self, words: Sequence[bytes]) -> None:
        count = len(words)
        self._words: Any = ctypes.create_string_buffer(b"".join(map(_padded, words)), 8 * count)
        start = ctypes.addressof(self._words)
        self._places = (c_void_p * count)(*range(start, start + 8 * count, 8))
        self.address = ctypes.addressof(self._places)

    def set(self, place: int, word: bytes) -> None:
        self._words[8 * place : 8 * place + 8] = _padded(word)


class CudaDriver:
    """A device in its primary context, which becomes the current one of this thread. Work is queued
    on the default stream, as torch's is."""

    def __init__(self, index: int) -> None:
        self.library = library()
        with stage("cuInit"):
            self.check("cuInit", 0)
        with stage("context"):
            device, context = c_int(), c_void_p()
            self.check("cuDeviceGet", byref(device), index)
            self.device = int(device.value)
            self.check("cuDevicePrimaryCtxRetain", byref(context), self.device)
            self.check("cuCtxSetCurrent", context)
        self.launch_kernel = self.library.cuLaunchKernel

    def check(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        if code:
            raise self.error(code, name)

    def error(self, code: int, name: str) -> CudaError:
        text = c_char_p()
        self.library.cuGetErrorString(code, byref(text))
        said = text.value.decode(errors="replace") if text.value else f"unknown error {code}"
        return CudaError(f"CUDA error: {said} ({name})", code)

    def attribute(self, which: int) -> int:
        value = c_int()
        self.check("cuDeviceGetAttribute", byref(value), which, self.device)
        return int(value.value)

    def bus_id(self) -> str:
        text = ctypes.create_string_buffer(_BUS_ID_LENGTH)
        self.check("cuDeviceGetPCIBusId", text, _BUS_ID_LENGTH, self.device)
        return text.value.decode()

    def synchronize(self) -> None:
        self.check("cuCtxSynchronize")

    def allocate(self, size: int) -> int:
        address = c_uint64()
        self.check("cuMemAlloc_v2", byref(address), size)
        return int(address.value)

    def free(self, address: int) -> None:
        self.check("cuMemFree_v2", address)

    def upload(self, to: int, source: int, size: int) -> None:
        """From an address on the host; returns when the bytes have been read."""
        self.check("cuMemcpyHtoD_v2", to, source, size)

    def clear(self, address: int, size: int) -> None:
        self.check("cuMemsetD8_v2", address, 0, size)

    def module(self, image: bytes) -> c_void_p:
        """Of a cubin, or of PTX, which the driver compiles."""
        module = c_void_p()
        self.check("cuModuleLoadData", byref(module), image)
        return module

    def module_as_written(self, ptx: bytes) -> c_void_p:
        """Of PTX that is compiled line by line, which is quicker than to improve it."""
        module = c_void_p()
        level, zero = c_int(_OPTIMISATION_LEVEL), c_void_p(0)
        self.check("cuModuleLoadDataEx", byref(module), ptx, 1, byref(level), byref(zero))
        return module

    def unload(self, module: c_void_p) -> None:
        self.check("cuModuleUnload", module)

    def function(self, module: c_void_p, name: str) -> c_void_p:
        function = c_void_p()
        self.check("cuModuleGetFunction", byref(function), module, name.encode())
        return function

    def function_attribute(self, function: c_void_p, which: int) -> int:
        value = c_int()
        self.check("cuFuncGetAttribute", byref(value), which, function)
        return int(value.value)

    def allow_shared(self, function: c_void_p) -> None:
        """As much dynamic shared memory as the device has, and a cache split in its favour."""
        self.check("cuFuncSetCacheConfig", function, _PREFER_SHARED)
        most = self.attribute(SHARED_BYTES)
        own = self.function_attribute(function, STATIC_SHARED_BYTES)
        self.check("cuFuncSetAttribute", function, _DYNAMIC_SHARED_BYTES, most - own)

    def launch(
        self,
        function: c_void_p,
        grid: tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        parameters: Parameters,
        stream: int | None = None,
    ) -> None:
        code = self.launch_kernel(
            function, *grid, threads, 1, 1, shared_bytes, stream, parameters.address, None
        )
        if code:
            raise self.error(code, "cuLaunchKernel")

    def event(self) -> c_void_p:
        event = c_void_p()
        self.check("cuEventCreate", byref(event), 0)
        return event


@cache
def driver_on(index: int) -> CudaDriver:
    """The device of this number among those that the process may see."""
    return CudaDriver(index)


@cache
def library() -> Any:
    """The driver's library with the types of its functions. Raises `CudaError` where it is not."""
    try:
        found = ctypes.CDLL("libcuda.so.1")
        for name, types in ARGUMENTS.items():
            function = getattr(found, name)
            function.argtypes = types
            function.restype = c_int
    except (OSError, AttributeError) as error:
        raise CudaError(f"CUDA error: no usable driver ({error})") from None
    return found


@cache
def compiles_ptx() -> bool:
    """Whether the driver can and may, found out without a call of it and, as a rule, without
    loading the compiler, which takes 25 ms: look-ups ask, too."""
    if any(os.environ.get(name, "0") not in ("", "0") for name in _FORBIDDING):
        return False
    if any((folder / _COMPILER).exists() for folder in _folders_of("libcuda.so")):
        return True
    try:
        ctypes.CDLL(_COMPILER)
    except OSError:
        return False
    return True


def _folders_of(name: str) -> set[Path]:
    """Where libraries lie that this process has loaded."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return set()
    return {Path(line[line.index("/") :]).parent for line in lines if f"/{name}" in line}


def word(value: int) -> bytes:
    """An address or a count, as a parameter."""
    return value.to_bytes(8, "little")


def _padded(text: bytes) -> bytes:
    return text.ljust(8, b"\0")
