"""A fused attention forward in fp16, head dimension 64: softmax(QKᵀ/8)V without storing QKᵀ.

Tensors are (batch × heads, sequence, 64), contiguous; the sequence is a multiple of every block.
"""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

HEAD = 64
LARGEST_BLOCK = 256


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    heads,
    sequence,
    scale,
    CAUSAL: tl.constexpr,
    HEAD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    block = tl.program_id(axis=0)
    base = tl.program_id(axis=1).to(tl.int64) * sequence * HEAD
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    depth = tl.arange(0, HEAD)
    q = tl.load(q_ptr + base + rows[:, None] * HEAD + depth[None, :])
    k_ptrs = k_ptr + base + columns[None, :] * HEAD + depth[:, None]
    v_ptrs = v_ptr + base + columns[:, None] * HEAD + depth[None, :]

    # Powers of two are cheaper than powers of e.
    scale_2 = scale * 1.4426950408889634
    highest = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    accumulator = tl.zeros((BLOCK_M, HEAD), dtype=tl.float32)
    end = sequence
    if CAUSAL:
        end = (block + 1) * BLOCK_M
    for start in range(0, end, BLOCK_N):
        k = tl.load(k_ptrs)
        scores = tl.dot(q, k) * scale_2
        if CAUSAL:
            seen = rows[:, None] >= (start + columns)[None, :]
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        powers = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(powers, axis=1)
        v = tl.load(v_ptrs)
        accumulator = tl.dot(powers.to(tl.float16), v, accumulator * shrink[:, None])
        highest = higher
        k_ptrs += BLOCK_N * HEAD
        v_ptrs += BLOCK_N * HEAD
    accumulator = accumulator / total[:, None]
    tl.store(
        o_ptr + base + rows[:, None] * HEAD + depth[None, :],
        accumulator.to(tl.float16),
    )


def attention_inputs(heads: int, sequence: int, device: str = "cuda") -> tuple[Any, ...]:
    """Q, K, V and room for the output. `heads` is batch × heads."""
    if sequence % LARGEST_BLOCK:
        raise ValueError(f"the sequence must be a multiple of {LARGEST_BLOCK}, not {sequence}")
    torch.manual_seed(0)
    shape = (heads, sequence, HEAD)
    q, k, v = (torch.randn(shape, device=device, dtype=torch.float16) for _ in range(3))
    return q, k, v, torch.empty_like(q)


def attention_arguments(q: Any, k: Any, v: Any, o: Any, causal: bool = False) -> tuple[Any, ...]:
    """What `attention_kernel` takes before the constants that are tuned."""
    heads, sequence, _ = q.shape
    return (q, k, v, o, heads, sequence, HEAD**-0.5, causal, HEAD)


def attention_grid(heads: int, sequence: int) -> Any:
    def grid(meta: Any) -> tuple[int, int]:
        return (triton.cdiv(sequence, meta["BLOCK_M"]), heads)

    return grid


def attention_error(q: Any, k: Any, v: Any, o: Any, causal: bool = False) -> float:
    """The largest difference to torch's, relative to its largest element."""
    with torch.no_grad():
        attend = torch.nn.functional.scaled_dot_product_attention
        expected = attend(q[None], k[None], v[None], is_causal=causal)[0].float()
    return float((o.float() - expected).abs().max() / expected.abs().max())
