"""Softmax attention, forward: one program for a block of queries, online softmax over the keys."""
# ruff: noqa: N803, E501 - parameters of kernels are written in capitals by custom
# fmt: off

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from whet.kernels.spaces import ATTENTION_SPACE
from whet.kernels.tiles import power
from whet.targets.triton.decorator import autotune

_SHARED_BYTES = 232_448


def _fitting(configs: Sequence[Any], named: dict[str, Any], **given: Any) -> list[Any]:
    known = {**named, **given}
    width, size = known["WIDTH"], known["q"].element_size()

    def fits(config: Any) -> bool:
        tile = config.kwargs
        shared = size * width * (tile["BLOCK_M"] + 2 * tile["BLOCK_N"] * config.num_stages)
        return shared <= _SHARED_BYTES and tile["BLOCK_M"] * width <= 4096 * config.num_warps

    fitting = [config for config in configs if fits(config)]
    if fitting:
        return fitting
    return sorted(configs, key=lambda one: (one.kwargs["BLOCK_M"], one.kwargs["BLOCK_N"], one.num_stages))[:1]


@triton.jit
def _blocks(acc, top, total, q, k, v, first, begin, end, keys, k_row, v_row, scale, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr):
    """Adds the keys from `begin` to `end`; those of the last blocks may be hidden or missing."""
    d = tl.arange(0, WIDTH)
    for start in range(begin, end, BLOCK_N):
        j = start + tl.arange(0, BLOCK_N)
        there = (d < D)[None, :]
        if MASKED:
            there = (j < keys)[:, None] & there
        key = tl.load(k + j.to(tl.int64)[:, None] * k_row + d[None, :], there, 0.0)
        scores = tl.dot(q, key.T, input_precision=PRECISION) * scale
        if MASKED:
            seen = (j < keys)[None, :] & (tl.zeros([BLOCK_M], tl.int32) == 0)[:, None]
            if CAUSAL:
                seen = seen & ((first + tl.arange(0, BLOCK_M))[:, None] >= j[None, :])
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        # A row that has seen nothing yet keeps minus infinity, from which nothing may be taken.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(top - base)
        total = total * shrink + tl.sum(p, 1)
        value = tl.load(v + j.to(tl.int64)[:, None] * v_row + d[None, :], there, 0.0)
        acc = tl.dot(p.to(value.dtype), value, acc * shrink[:, None], input_precision=PRECISION)
        top = higher
    return acc, top, total


@autotune(
    space=ATTENTION_SPACE,
    key=["queries", "keys", "D", "CAUSAL"],
    buckets={"queries": "pow2", "keys": "pow2"},
    prune_configs_by={"early_config_prune": _fitting},
)
@triton.jit
def attention_kernel(
    q, k, v, y, queries, keys, heads, shared_by, q_batch, q_head, q_row, k_batch, k_head, k_row,
    v_batch, v_head, v_row, scale, D: tl.constexpr, WIDTH: tl.constexpr, CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    # The last blocks of a causal call have most to do, so they come first.
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M
    batch, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    own = head // shared_by
    i, d = first + tl.arange(0, BLOCK_M), tl.arange(0, WIDTH)
    inside = (i < queries)[:, None] & (d < D)[None, :]
    k += batch * k_batch + own * k_head
    v += batch * v_batch + own * v_head
    query = tl.load(q + batch * q_batch + head * q_head + i.to(tl.int64)[:, None] * q_row + d[None, :], inside, 0.0)
    acc = tl.zeros([BLOCK_M, WIDTH], tl.float32)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    end = tl.minimum(keys, first + BLOCK_M) if CAUSAL else keys
    clear = tl.minimum(keys, first) if CAUSAL else keys
    clear = clear // BLOCK_N * BLOCK_N
    acc, top, total = _blocks(acc, top, total, query, k, v, first, 0, clear, keys, k_row, v_row, scale, BLOCK_M, BLOCK_N, D, WIDTH, CAUSAL, False, PRECISION)
    acc, top, total = _blocks(acc, top, total, query, k, v, first, clear, end, keys, k_row, v_row, scale, BLOCK_M, BLOCK_N, D, WIDTH, CAUSAL, True, PRECISION)
    acc = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    at = (tl.program_id(1).to(tl.int64) * queries + i)[:, None] * D + d[None, :]
    tl.store(y + at, acc.to(y.dtype.element_ty), inside)


def attended(q: Any, k: Any, v: Any, causal: bool, scale: float | None) -> Any:
    """All are batch × heads × tokens × dim; keys and values may have fewer heads."""
    q, k, v = (one if one.stride(-1) == 1 else one.contiguous() for one in (q, k, v))
    batches, heads, queries, width = q.shape
    y = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if not y.numel():
        return y
    if not k.shape[2]:
        return y.zero_()
    factor = (width**-0.5 if scale is None else scale) / math.log(2)

    def grid(meta: Any) -> tuple[int, int]:
        return -(-queries // meta["BLOCK_M"]), batches * heads

    attention_kernel[grid](
        q, k, v, y, queries, k.shape[2], heads, heads // k.shape[1], *q.stride()[:3],
        *k.stride()[:3], *v.stride()[:3], factor, D=width,
        WIDTH=max(16, power(width)), CAUSAL=causal,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
    )
    return y
