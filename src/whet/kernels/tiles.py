"""What the kernels of matrix products share: the order of tiles, sums over parts of K, activations,
and which configs suit a shape."""
# ruff: noqa: N803, N806, RET505 - parameters of kernels are written in capitals by custom

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

# Beyond so many rows there are tiles enough, and what K is split into would cost too much memory.
MOST_ROWS_TO_SPLIT = 64
MOST_SPLIT = 8

# So many programs of a persistent kernel are enough for any GPU that is not known.
_FEW_MULTIPROCESSORS = 132


@triton.jit
def tile_at(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Tiles in groups of rows, so that those which run at the same time share their inputs."""
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    group = tile // (GROUP_M * across)
    first = group * GROUP_M
    height = tl.minimum(down - first, GROUP_M)
    within = tile % (GROUP_M * across)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def part_of_k(K, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr):
    """Where this program's part of K begins and ends."""
    if SPLIT_K == 1:
        return 0, K
    else:
        part = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K
        begin = tl.program_id(1) * part
        return begin, tl.minimum(begin + part, K)


@triton.jit
def keep_part(
    sums, acc, tile, tiles, slot, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SLOTS: tl.constexpr
):
    """Writes one part's sum, where the last to come will find it."""
    at = ((tl.program_id(1) * tiles + tile) * SLOTS + slot).to(tl.int64) * (BLOCK_M * BLOCK_N)
    i = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    tl.store(sums + at + i, acc)


@triton.jit
def is_last(locks, tile, SPLIT_K: tl.constexpr):
    """Whether all other parts of the tile are written. The lock is left as it was found: zero."""
    tl.debug_barrier()
    last = tl.atomic_add(locks + tile, 1, sem="acq_rel") == SPLIT_K - 1
    if last:
        tl.atomic_xchg(locks + tile, 0, sem="relaxed")
    tl.debug_barrier()
    return last


@triton.jit
def sum_of_parts(
    sums, tile, tiles, slot, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SLOTS: tl.constexpr,
    SPLIT_K: tl.constexpr,
):  # fmt: skip
    """Always in the same order, whoever comes last."""
    i = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for part in range(SPLIT_K):
        at = ((part * tiles + tile) * SLOTS + slot).to(tl.int64) * (BLOCK_M * BLOCK_N)
        acc += tl.load(sums + at + i, cache_modifier=".cg")
    return acc


@triton.jit
def gathered(
    sums, locks, acc, tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    SPLIT_K: tl.constexpr,
):  # fmt: skip
    """The sum of all parts of a tile, and whether this program is the one that has it."""
    if SPLIT_K == 1:
        return acc, True
    else:
        tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        keep_part(sums, acc, tile, tiles, 0, BLOCK_M, BLOCK_N, 1)
        whole = is_last(locks, tile, SPLIT_K)
        if whole:
            acc = sum_of_parts(sums, tile, tiles, 0, BLOCK_M, BLOCK_N, 1, SPLIT_K)
        return acc, whole


@triton.jit
def activated(g, ACTIVATION: tl.constexpr):
    if ACTIVATION == "silu":
        return g * tl.sigmoid(g)
    elif ACTIVATION == "gelu":
        return 0.5 * g * (1 + tl.erf(g * 0.7071067811865476))
    else:
        inner = 0.7978845608028654 * (g + 0.044715 * g * g * g)
        return g * tl.sigmoid(2 * inner)


def power(n: int) -> int:
    """The next power of two, at least one. Triton's own takes 5 µs, as does its cdiv."""
    return 1 << max(0, n - 1).bit_length()


@cache
def multiprocessors(device: int | None) -> int:
    if device is None or not torch.cuda.is_available():
        return _FEW_MULTIPROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@cache
def has_descriptors(device: int | None) -> bool:
    """Whether Triton has them, and the device what they need."""
    if not hasattr(tl, "make_tensor_descriptor"):
        return False
    if device is None or not torch.cuda.is_available() or torch.version.hip:
        return False
    return bool(torch.cuda.get_device_capability(device) >= (9, 0))


def workspace(x: Any, columns: int, slots: int) -> tuple[Any, Any]:
    """Room for parts of sums, for the largest tiles there are, and locks that are zero; anything
    where nothing will be split."""
    if x.shape[0] > MOST_ROWS_TO_SPLIT:
        return x, x
    # Tiles are at most 256 wide, and the last one may hang over; the shortest have 16 rows of 32.
    size = MOST_SPLIT * slots * MOST_ROWS_TO_SPLIT * (columns + 256)
    sums = torch.empty(size, dtype=torch.float32, device=x.device)
    return sums, _locks(x.device, 4 * -(-columns // 32))


# Kernels leave locks as they found them: zero. So they are zeroed once, and outside of captures: a
# graph may be replayed before the one that would have zeroed them.
_by_stream: dict[tuple[Any, int], Any] = {}
_for_graphs: dict[Any, list[Any]] = {}
_LOCKS_FOR_GRAPHS = 1 << 20


def _locks(device: Any, count: int) -> Any:
    """One set for each stream, whose launches follow each other. What is captured has its own:
    nobody knows beside what it will be replayed."""
    if device.type != "cuda":
        return torch.zeros(count, dtype=torch.int32, device=device)
    if torch.cuda.is_current_stream_capturing():
        left = _for_graphs.get(device, [None])
        if left[0] is None or left[0].numel() < count:
            return torch.zeros(count, dtype=torch.int32, device=device)
        taken, left[0] = left[0][:count], left[0][count:]
        return taken
    if device not in _for_graphs:
        _for_graphs[device] = [torch.zeros(_LOCKS_FOR_GRAPHS, dtype=torch.int32, device=device)]
    at = device, _current_stream(device.index)
    known = _by_stream.get(at)
    if known is None or known.numel() < count:
        known = _by_stream[at] = torch.zeros(max(4096, count), dtype=torch.int32, device=device)
    return known


def _current_stream(device: int) -> int:
    """Its address; torch's public function makes an object around it, which takes 3 µs."""
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw(device) if raw else torch.cuda.current_stream(device).cuda_stream


def let_triton_allocate() -> None:
    """Descriptors that a kernel makes need memory, which Triton asks the program for."""
    from triton.runtime import _allocation

    known: Any = getattr(_allocation, "_allocator", None)
    current = known.get() if hasattr(known, "get") else known
    if type(current).__name__ in ("NullAllocator", "NoneType"):
        triton.set_allocator(_allocated)


def _allocated(size: int, alignment: int, stream: int | None) -> Any:
    return torch.empty(size, dtype=torch.int8, device="cuda")


def suited(configs: Sequence[Any], named: dict[str, Any], **given: Any) -> list[Any]:
    """Those that may be fast for this shape: a few dozen of several hundred."""
    return suited_for(configs, {**named, **given}, deep=64)


def suited_for(configs: Sequence[Any], known: dict[str, Any], deep: int) -> list[Any]:
    """`deep` is how many elements of K tensor cores are fed with at a time: 128 bytes."""
    M, N, K = known["M"], known["N"], known["K"]
    device = known["x"].device.index if known["x"].is_cuda else None
    units = multiprocessors(device)
    described = known["ALIGNED"] and has_descriptors(device)
    left = [
        one
        for one in configs
        if _fits(one.kwargs, M, N, K, units, deep) and (described or not one.kwargs["DESCRIPTORS"])
    ]
    # Any shape can be computed through pointers, without a part of K for itself.
    plain = [one for one in configs if _is_plain(one.kwargs)]
    return left or plain[-1:] or list(configs[-1:])


def _is_plain(tile: dict[str, Any]) -> bool:
    return tile["SPLIT_K"] == 1 and not tile["DESCRIPTORS"] and not tile["PERSISTENT"]


def _fits(tile: dict[str, Any], M: int, N: int, K: int, units: int, deep: int) -> bool:
    width = tile["BLOCK_N"]
    if width > max(32, triton.next_power_of_2(N)):
        return False
    tiles = triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, width)
    few = M <= MOST_ROWS_TO_SPLIT
    return _streams(tile, M, K, tiles, units) if few else _computes(tile, M, N, tiles, units, deep)


def _streams(tile: dict[str, Any], M: int, K: int, tiles: int, units: int) -> bool:
    """For few rows, which are done when the weights are read: one row of tiles, as many bytes on
    their way as there is room for, and K split until all multiprocessors have work."""
    if tile["BLOCK_M"] != max(16, triton.next_power_of_2(M)) or tile["PERSISTENT"]:
        return False
    split, depth = tile["SPLIT_K"], tile["BLOCK_K"]
    if tile["GROUP_M"] > 1 or (tile["DESCRIPTORS"] and depth < 128) or tile["BLOCK_N"] > 128:
        return False
    return split == 1 or (tiles * (split // 2) < 2 * units and 2 * split * depth <= K)


def _computes(tile: dict[str, Any], M: int, N: int, tiles: int, units: int, deep: int) -> bool:
    """For many rows, where tensor cores must be fed: large tiles, as far as there are columns, in
    groups; persistent programs read through descriptors, others through pointers."""
    height = tile["BLOCK_M"]
    if height < 64 or height > triton.next_power_of_2(M) or tile["GROUP_M"] == 1:
        return False
    if tile["SPLIT_K"] > 1 or tile["BLOCK_K"] != deep:
        return False
    narrow = tile["BLOCK_N"] < triton.next_power_of_2(N)
    if narrow and height * tile["BLOCK_N"] < 64 * 128 and tiles > units:
        return False
    return tile["PERSISTENT"] == (tile["DESCRIPTORS"] and tiles > units)
