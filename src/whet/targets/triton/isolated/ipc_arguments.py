"""Arguments of a call, on their way into another process.

    pack((x, x[1:], 3))    two views of one copy, and a number

A process may be killed at any time and a new one takes its place, so `IpcArguments` can be unpacked
any number of times, as long as the process that packed them keeps the tensors. torch's way of
sharing memory takes care of reference counts between two processes that both live on; so the
driver's own calls are used, by ctypes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

_LAZY_PEER_ACCESS = 1


class Handle(ctypes.Structure):
    """`CUipcMemHandle`, which is passed by value."""

    _fields_ = (("bytes", ctypes.c_ubyte * 64),)


class NotShared(Exception):
    """The driver does not share this memory: it was not made by `cuMemAlloc`, or a container
    stands between the two processes."""


def exported_memory(address: int) -> tuple[bytes, int]:
    """A handle of the allocation around `address`, and how far into it that is."""
    library, base, handle = _library(), ctypes.c_uint64(), Handle()
    _check(
        library.cuMemGetAddressRange_v2(ctypes.byref(base), None, ctypes.c_uint64(address)),
        "cuMemGetAddressRange",
    )
    _check(library.cuIpcGetMemHandle(ctypes.byref(handle), base), "cuIpcGetMemHandle")
    return bytes(handle), address - base.value


@contextlib.contextmanager
def opened_memory(handle: bytes) -> Iterator[int]:
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


def copy_on_device(to: int, source: int, size: int) -> None:
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


# Kernels are specialised to addresses, and as fast as these allow: copies lie as the originals do.
ALIGNMENT = 512

# A storage of this size goes whole, since kernels reach beyond the view they are given.
WHOLE_BYTES = 64 << 20


class CannotIsolate(Exception):
    """Why a call cannot be measured in another process, with the remedy."""


@dataclass(frozen=True)
class Block:
    """Bytes from one storage. `lead` comes before them in the copy, so that they are aligned as
    they were. `handle` and `offset` are for the driver; `path` is a file with the bytes, which
    goes with the process that packed it; `data` are the bytes, for another machine."""

    size: int
    lead: int
    device: str
    pinned: bool = False
    handle: bytes | None = None
    offset: int = 0
    path: str = ""
    data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class View:
    """A tensor in the copy of a block; `offset` in bytes from the block's beginning."""

    block: int
    offset: int
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    """Stands for the tensor of this number."""

    number: int


@dataclass(frozen=True)
class Wrapped:
    """Stands for an object of Triton's around a tensor: a descriptor, or another dtype."""

    kind: type
    base: Tensor
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class IpcArguments:
    blocks: tuple[Block, ...] = ()
    views: tuple[View, ...] = ()

    def on_only_device(self) -> IpcArguments:
        """For a process that sees one device, whatever its number is here."""
        blocks = (b if b.device == "cpu" else replace(b, device="cuda:0") for b in self.blocks)
        return replace(self, blocks=tuple(blocks))

    @property
    def device_bytes(self) -> int:
        """What a copy takes of the device's memory."""
        return sum(block.size for block in self.blocks if block.device != "cpu")


class Packer:
    """Collects the tensors of a call. Both sides then speak of them by number."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._tensors: list[Any] = []
        self._files: list[int] = []
        self._carried = False

    def add(self, value: Any) -> Any:
        """The value with its tensors replaced by numbers; what is not known yet is taken along."""
        return self._encoded(value, self._number)

    def find(self, value: Any) -> Any:
        """The same, for values whose tensors have all been added."""
        return self._encoded(value, self._known)

    def close(self) -> None:
        """Nothing can be unpacked any more."""
        files, self._files = self._files, []
        for file in files:
            os.close(file)

    def ipc_arguments(self, through_host: bool = False, *, carried: bool = False) -> IpcArguments:
        """Where the bytes are, after the device has done what it was asked to.

        Device memory is shared by the driver, where that does so and it is not to go
        `through_host`. With `carried` the bytes themselves are part of the answer. Raises
        `CannotIsolate`.
        """
        spans = _spans(self._tensors)
        _synchronize(self._tensors)
        self._carried = carried
        try:
            blocks = [self._block(span, through_host) for span in spans.values()]
        except NotShared:
            self.close()
            blocks = [self._block(span, through_host=True) for span in spans.values()]
        numbers = {key: number for number, key in enumerate(spans)}
        return IpcArguments(
            tuple(blocks),
            tuple(
                View(
                    block=numbers[_home(tensor)],
                    offset=_start(tensor) - spans[_home(tensor)].low,
                    dtype=tensor.dtype,
                    shape=tuple(tensor.shape),
                    strides=tuple(tensor.stride()),
                )
                for tensor in self._tensors
            ),
        )

    def _block(self, span: _Span, through_host: bool) -> Block:
        address, size = span.address + span.low, span.high - span.low
        block = Block(size, address % ALIGNMENT, str(span.device), span.pinned)
        if not size:
            return block
        if self._carried:
            return replace(block, data=_bytes_of(span).cpu().numpy().tobytes())
        if span.device.type == "cuda" and not through_host:
            handle, offset = exported_memory(address)
            return replace(block, handle=handle, offset=offset)
        try:
            self._files.append(os.memfd_create("whet-arguments"))
            with open(self._files[-1], "wb", closefd=False) as file:
                _bytes_of(span).cpu().numpy().tofile(file)
        except (OSError, MemoryError, AttributeError) as error:
            text = f"not enough host memory to copy the arguments ({error})"
            raise CannotIsolate(text) from None
        return replace(block, path=f"/proc/{os.getpid()}/fd/{self._files[-1]}")

    def _number(self, tensor: Any) -> Tensor:
        if id(tensor) not in self._numbers:
            _refuse_unknown(tensor)
            self._numbers[id(tensor)] = len(self._tensors)
            self._tensors.append(tensor)
        return Tensor(self._numbers[id(tensor)])

    def _known(self, tensor: Any) -> Tensor:
        if id(tensor) not in self._numbers:
            raise CannotIsolate("each config creates a tensor that is not an argument of the call")
        return Tensor(self._numbers[id(tensor)])

    def _encoded(self, value: Any, number: Callable[[Any], Tensor]) -> Any:
        kinds = {kind.__name__ for kind in type(value).__mro__}
        if "TensorDescriptor" in kinds:
            fields = {name: part for name, part in vars(value).items() if name != "base"}
            return Wrapped(type(value), number(value.base), _pickled(fields))
        if "TensorWrapper" in kinds:
            return Wrapped(type(value), number(value.base), _pickled({"dtype": value.dtype}))
        if hasattr(value, "data_ptr"):
            return number(value)
        if isinstance(value, tuple):
            parts = [self._encoded(part, number) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return _pickled(value)


class Unpacker:
    """The tensors of a ipc_arguments, copied into this process."""

    def __init__(self, ipc_arguments: IpcArguments) -> None:
        copies = _copies(ipc_arguments.blocks)
        self._tensors = [_view(copies[view.block], view) for view in ipc_arguments.views]

    def decoded(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._tensors[value.number]
        if isinstance(value, Wrapped):
            return value.kind(base=self._tensors[value.base.number], **value.fields)
        if isinstance(value, tuple):
            parts = [self.decoded(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return value


@dataclass(frozen=True)
class _Span:
    """Of a storage at `address`, the bytes from `low` to `high`."""

    storage: Any
    address: int
    device: Any
    pinned: bool
    low: int
    high: int


def _home(tensor: Any) -> tuple[str, int]:
    return str(tensor.device), int(tensor.untyped_storage().data_ptr())


def _start(tensor: Any) -> int:
    return int(tensor.storage_offset()) * int(tensor.element_size())


def _spans(tensors: Sequence[Any]) -> dict[tuple[str, int], _Span]:
    spans: dict[tuple[str, int], _Span] = {}
    for tensor in tensors:
        low, home = _start(tensor), _home(tensor)
        last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        high = low + (last + 1) * int(tensor.element_size()) if tensor.numel() else low
        known = spans.get(home)
        if known is None:
            storage = tensor.untyped_storage()
            whole = storage.nbytes()
            if whole <= WHOLE_BYTES:
                low, high = 0, whole
            pinned = tensor.device.type == "cpu" and bool(tensor.is_pinned())
            spans[home] = _Span(storage, home[1], tensor.device, pinned, low, high)
        else:
            spans[home] = replace(known, low=min(known.low, low), high=max(known.high, high))
    return spans


def _bytes_of(span: _Span) -> Any:
    import torch

    with torch.inference_mode(False):
        whole = torch.empty(0, dtype=torch.uint8, device=span.device).set_(span.storage)
        return whole[span.low : span.high]


def _synchronize(tensors: Sequence[Any]) -> None:
    devices = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
    if devices:
        import torch

        for device in devices:
            torch.cuda.synchronize(device)


def _copies(blocks: Sequence[Block]) -> list[Any]:
    """A byte tensor for each block, beginning with the block's first byte."""
    import numpy as np
    import torch

    copies = []
    for block in blocks:
        # Not every allocator aligns that well: what is too much is left out in front.
        size = block.size + block.lead + ALIGNMENT
        room = torch.empty(size, dtype=torch.uint8, device=block.device, pin_memory=block.pinned)
        skip = block.lead + (-room.data_ptr()) % ALIGNMENT
        copies.append(room[skip : skip + block.size])
    by_handle: dict[bytes, list[tuple[Block, Any]]] = {}
    for block, copied in zip(blocks, copies, strict=True):
        if block.handle is not None:
            by_handle.setdefault(block.handle, []).append((block, copied))
        elif block.data:
            _fill(np.frombuffer(block.data, np.uint8), copied)
        elif block.path:
            _read(block.path, copied)
    for handle, wanted in by_handle.items():
        with opened_memory(handle) as address:
            for block, copied in wanted:
                copy_on_device(copied.data_ptr(), address + block.offset, block.size)
            torch.cuda.synchronize()
    return copies


def _read(path: str, into: Any) -> None:
    import numpy as np

    if os.path.getsize(path):
        _fill(np.fromfile(path, np.uint8), into)


def _fill(values: Any, into: Any) -> None:
    import torch

    into.copy_(torch.from_numpy(values if values.flags.writeable else values.copy()))


def _view(copied: Any, view: View) -> Any:
    """Of the bytes as of one storage: a view of another type would have to be aligned in it."""
    import torch

    tensor = torch.empty(0, dtype=view.dtype, device=copied.device)
    start = copied.storage_offset() + view.offset
    size = tensor.element_size()
    if start % size:
        raise CannotIsolate("an argument is not aligned to the size of its elements")
    return tensor.set_(copied.untyped_storage(), start // size, view.shape, view.strides)


def _refuse_unknown(tensor: Any) -> None:
    try:
        import torch
    except ImportError:
        raise CannotIsolate("copying arguments needs torch, which is not installed") from None
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    if not plain or tensor.device.type not in ("cuda", "cpu"):
        kind = type(tensor).__qualname__
        raise CannotIsolate(
            f"an argument of type {kind} is not a plain torch tensor that can be copied"
        )


def _pickled(value: Any) -> Any:
    try:
        packed = pickle.dumps(value, protocol=5)
    except Exception as error:
        kind = type(value).__qualname__
        raise CannotIsolate(f"an argument of type {kind} cannot be sent ({error})") from None
    if b"__main__" in packed:
        kind = type(value).__qualname__
        raise CannotIsolate(
            f"an argument of type {kind} has a class that is defined only in this script"
        )
    return value
