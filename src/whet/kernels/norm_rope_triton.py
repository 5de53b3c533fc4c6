"""RMS norm and rotary embedding in one pass over memory, forward and backward.

A program takes `ROWS` tokens one after another, and of each the whole row or a block of heads. The
weight and the angles are loaded once for all heads, and everything is computed in float32.
"""
# ruff: noqa: N803, N806, E501, RET505 - parameters of kernels are written in capitals by custom
# fmt: off

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from whet.kernels.spaces import RMSNORM_ROPE_SPACE
from whet.kernels.tiles import power
from whet.targets.triton.decorator import autotune

# So many programs each sum up a part of the weight's gradient.
_BACKWARD_PROGRAMS = 512


def _fitting(configs: Sequence[Any], named: dict[str, Any], **given: Any) -> list[Any]:
    """A block that is longer than the row only does masked work; that of a whole row is the row."""
    known = {**named, **given}
    row = known["ROW_P2"] * known["WIDTH"]
    sizes = sorted({config.kwargs["BLOCK_SIZE"] for config in configs})
    covering = min([size for size in sizes if size >= row], default=sizes[-1])
    if not known["WHOLE_ROW"]:
        return [config for config in configs if config.kwargs["BLOCK_SIZE"] <= covering]
    whole = [config for config in configs if config.kwargs["BLOCK_SIZE"] == covering]
    most = max(config.num_warps for config in whole)
    return [one for one in whole if row <= 2048 * one.num_warps or one.num_warps == most]


def heads_at_once(block_size: int, width: int, row: int, whole_row: bool) -> int:
    """As the kernel has it."""
    return row if whole_row else min(row, max(1, block_size // width))


@triton.jit
def _read(base, heads, here, HALF: tl.constexpr, HALF_P2: tl.constexpr, REST: tl.constexpr, REST_P2: tl.constexpr, INTERLEAVED: tl.constexpr):
    """The two partners of each rotation, and what is not rotated, of some heads."""
    i = tl.arange(0, HALF_P2)
    if INTERLEAVED:
        j = tl.arange(0, 2 * HALF_P2)
        pairs = tl.load(base + heads + j[None, :], here & (j < 2 * HALF)[None, :], 0.0)
        a, b = tl.split(tl.reshape(pairs, [pairs.shape[0], HALF_P2, 2]))
    else:
        a = tl.load(base + heads + i[None, :], here & (i < HALF)[None, :], 0.0)
        b = tl.load(base + heads + HALF + i[None, :], here & (i < HALF)[None, :], 0.0)
    r = tl.arange(0, REST_P2)
    c = tl.load(base + heads + 2 * HALF + r[None, :], here & (r < REST)[None, :], 0.0)
    return a.to(tl.float32), b.to(tl.float32), c.to(tl.float32)


@triton.jit
def _write(base, heads, here, a, b, c, HALF: tl.constexpr, HALF_P2: tl.constexpr, REST: tl.constexpr, REST_P2: tl.constexpr, INTERLEAVED: tl.constexpr):
    kind = base.dtype.element_ty
    if INTERLEAVED:
        j = tl.arange(0, 2 * HALF_P2)
        pairs = tl.reshape(tl.join(a, b), [a.shape[0], 2 * HALF_P2])
        tl.store(base + heads + j[None, :], pairs.to(kind), here & (j < 2 * HALF)[None, :])
    else:
        i = tl.arange(0, HALF_P2)
        tl.store(base + heads + i[None, :], a.to(kind), here & (i < HALF)[None, :])
        tl.store(base + heads + HALF + i[None, :], b.to(kind), here & (i < HALF)[None, :])
    if REST > 0:
        r = tl.arange(0, REST_P2)
        tl.store(base + heads + 2 * HALF + r[None, :], c.to(kind), here & (r < REST)[None, :])


@triton.jit
def _angles(cos, sin, token, table_rows, table_stride, STEP: tl.constexpr, HALF: tl.constexpr, HALF_P2: tl.constexpr):
    i = tl.arange(0, HALF_P2)
    at = (token % table_rows).to(tl.int64) * table_stride + i * STEP
    c = tl.load(cos + at, i < HALF, 0.0).to(tl.float32)
    s = tl.load(sin + at, i < HALF, 0.0).to(tl.float32)
    return c[None, :], s[None, :]


@triton.jit
def _scales(a, b, c, eps, H: tl.constexpr, D: tl.constexpr, WHOLE_ROW: tl.constexpr):
    """One over the root mean square: of the row, or of each head."""
    squares = tl.sum(a * a, 1) + tl.sum(b * b, 1) + tl.sum(c * c, 1)
    if WHOLE_ROW:
        return tl.rsqrt(tl.sum(squares, 0) / (H * D) + eps)
    else:
        return tl.rsqrt(squares / D + eps)[:, None]


@triton.jit
def _tokens(
    x, residual, weight, cos, sin, y, summed, head, n_tokens, per_batch, x_batch, x_token, x_head,
    r_batch, r_token, table_rows, table_stride, eps, H: tl.constexpr, D: tl.constexpr,
    HALF: tl.constexpr, HALF_P2: tl.constexpr, REST: tl.constexpr, REST_P2: tl.constexpr,
    STEP: tl.constexpr, INTERLEAVED: tl.constexpr, WHOLE_ROW: tl.constexpr, RESIDUAL: tl.constexpr,
    HEADS: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):
    h = (head + tl.arange(0, HEADS))[:, None]
    w_head = h * D if WHOLE_ROW else h * 0
    wa, wb, wc = _read(weight, w_head, h < H, HALF, HALF_P2, REST, REST_P2, INTERLEAVED)
    for row in tl.range(0, ROWS, num_stages=STAGES):
        token = tl.program_id(0) * ROWS + row
        here = h < tl.where(token < n_tokens, H, 0)
        batch, place = (token // per_batch).to(tl.int64), (token % per_batch).to(tl.int64)
        x_row = x + batch * x_batch + place * x_token
        out = token.to(tl.int64) * (H * D)
        cosine, sine = _angles(cos, sin, token, table_rows, table_stride, STEP, HALF, HALF_P2)
        a, b, c = _read(x_row, h * x_head, here, HALF, HALF_P2, REST, REST_P2, INTERLEAVED)
        if RESIDUAL:
            kind: tl.constexpr = x.dtype.element_ty
            r_row = residual + batch * r_batch + place * r_token
            a2, b2, c2 = _read(r_row, h * D, here, HALF, HALF_P2, REST, REST_P2, INTERLEAVED)
            a, b, c = (a + a2).to(kind), (b + b2).to(kind), (c + c2).to(kind)
            _write(summed + out, h * D, here, a, b, c, HALF, HALF_P2, REST, REST_P2, INTERLEAVED)
            a, b, c = a.to(tl.float32), b.to(tl.float32), c.to(tl.float32)
        scale = _scales(a, b, c, eps, H, D, WHOLE_ROW)
        a, b, c = a * scale * wa, b * scale * wb, c * scale * wc
        turned = a * cosine - b * sine
        b = b * cosine + a * sine
        _write(y + out, h * D, here, turned, b, c, HALF, HALF_P2, REST, REST_P2, INTERLEAVED)


@autotune(
    space=RMSNORM_ROPE_SPACE,
    key=["n_tokens", "H", "D", "HALF", "INTERLEAVED", "WHOLE_ROW", "RESIDUAL", "H2"],
    buckets={"n_tokens": "pow2"},
    prune_configs_by={"early_config_prune": _fitting},
)
@triton.jit
def rmsnorm_rope_kernel(
    x, weight, cos, sin, y, residual, summed, x2, weight2, y2, n_tokens, per_batch,
    x_batch, x_token, x_head, r_batch, r_token, x2_batch, x2_token, x2_head,
    table_rows, table_stride, eps, H: tl.constexpr, H2: tl.constexpr, D: tl.constexpr,
    HALF: tl.constexpr, HALF_P2: tl.constexpr, REST: tl.constexpr, REST_P2: tl.constexpr,
    STEP: tl.constexpr, INTERLEAVED: tl.constexpr, WHOLE_ROW: tl.constexpr, RESIDUAL: tl.constexpr,
    ROW_P2: tl.constexpr, WIDTH: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Blocks of heads of the first tensor come first, then those of the second, if there is one."""
    MOST: tl.constexpr = BLOCK_SIZE // WIDTH if BLOCK_SIZE > WIDTH else 1
    HEADS: tl.constexpr = ROW_P2 if WHOLE_ROW or MOST > ROW_P2 else MOST
    blocks = tl.cdiv(H, HEADS)
    block = tl.program_id(1)
    if block < blocks:
        _tokens(x, residual, weight, cos, sin, y, summed, block * HEADS, n_tokens, per_batch,
                x_batch, x_token, x_head, r_batch, r_token, table_rows, table_stride, eps, H, D,
                HALF, HALF_P2, REST, REST_P2, STEP, INTERLEAVED, WHOLE_ROW, RESIDUAL, HEADS, ROWS,
                STAGES)
    elif H2 > 0:
        _tokens(x2, residual, weight2, cos, sin, y2, summed, (block - blocks) * HEADS, n_tokens,
                per_batch, x2_batch, x2_token, x2_head, r_batch, r_token, table_rows, table_stride,
                eps, H2, D, HALF, HALF_P2, REST, REST_P2, STEP, INTERLEAVED, WHOLE_ROW, False,
                HEADS, ROWS, STAGES)


@triton.jit
def rmsnorm_rope_backward_kernel(
    x, weight, cos, sin, dy, added, dx, dw, n_tokens, table_rows, table_stride, eps,
    H: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, HALF_P2: tl.constexpr,
    REST: tl.constexpr, REST_P2: tl.constexpr, STEP: tl.constexpr, INTERLEAVED: tl.constexpr,
    WHOLE_ROW: tl.constexpr, ADDED: tl.constexpr, HEADS: tl.constexpr,
):
    """Every so many tokens of a block of heads, and this program's share of the weight's gradient.
    The scale is computed anew: that is cheaper than to store and load it."""
    h = (tl.program_id(1) * HEADS + tl.arange(0, HEADS))[:, None]
    w_head = h * D if WHOLE_ROW else h * 0
    wa, wb, wc = _read(weight, w_head, h < H, HALF, HALF_P2, REST, REST_P2, INTERLEAVED)
    dwa, dwb, dwc = wa * 0, wb * 0, wc * 0
    for turn in range(tl.cdiv(n_tokens, tl.num_programs(0))):
        token = tl.program_id(0) + turn * tl.num_programs(0)
        here = h < tl.where(token < n_tokens, H, 0)
        row = token.to(tl.int64) * (H * D)
        cosine, sine = _angles(cos, sin, token, table_rows, table_stride, STEP, HALF, HALF_P2)
        a, b, c = _read(x + row, h * D, here, HALF, HALF_P2, REST, REST_P2, INTERLEAVED)
        ga, gb, gc = _read(dy + row, h * D, here, HALF, HALF_P2, REST, REST_P2, INTERLEAVED)
        ga, gb = ga * cosine + gb * sine, gb * cosine - ga * sine
        scale = _scales(a, b, c, eps, H, D, WHOLE_ROW)
        a, b, c = a * scale, b * scale, c * scale
        dwa, dwb, dwc = dwa + ga * a, dwb + gb * b, dwc + gc * c
        ga, gb, gc = ga * wa, gb * wb, gc * wc
        along = tl.sum(ga * a, 1) + tl.sum(gb * b, 1) + tl.sum(gc * c, 1)
        mean = tl.sum(along, 0) / (H * D) if WHOLE_ROW else (along / D)[:, None]
        a, b, c = scale * (ga - a * mean), scale * (gb - b * mean), scale * (gc - c * mean)
        if ADDED:
            sa, sb, sc = _read(added + row, h * D, here, HALF, HALF_P2, REST, REST_P2, INTERLEAVED)
            a, b, c = a + sa, b + sb, c + sc
        _write(dx + row, h * D, here, a, b, c, HALF, HALF_P2, REST, REST_P2, INTERLEAVED)
    if WHOLE_ROW:
        dw += tl.program_id(0).to(tl.int64) * (H * D)
        _write(dw, h * D, h < H, dwa, dwb, dwc, HALF, HALF_P2, REST, REST_P2, INTERLEAVED)
    else:
        dw += (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)).to(tl.int64) * D
        one = tl.zeros([1, 1], tl.int32)
        dwa, dwb, dwc = tl.sum(dwa, 0)[None, :], tl.sum(dwb, 0)[None, :], tl.sum(dwc, 0)[None, :]
        _write(dw, one, one == 0, dwa, dwb, dwc, HALF, HALF_P2, REST, REST_P2, INTERLEAVED)


@cache
def _sizes(heads: int, second: int, width: int, half: int, angles: int, interleaved: bool) -> dict[str, Any]:
    rest = width - 2 * half
    return {
        "H": heads,
        "D": width,
        "HALF": half,
        "HALF_P2": power(half),
        "REST": rest,
        "REST_P2": power(rest),
        # A table with every angle twice has them side by side where pairs are interleaved.
        "STEP": 2 if angles == 2 * half and interleaved else 1,
        "INTERLEAVED": interleaved,
        "ROW_P2": power(max(heads, second)),
        "WIDTH": power(width),
    }


def forward(
    x: Any, weight: Any, cos: Any, sin: Any, eps: float, half: int, interleaved: bool,
    whole_row: bool, residual: Any = None, second: Any = None, second_weight: Any = None,
) -> tuple[Any, Any, Any]:
    """`x` is batch × tokens × heads × width, the tables are rows × angles, `residual` is batch ×
    tokens × row. Returns y, the sum with the residual, and the second tensor's y."""
    batches, tokens, heads, width = x.shape
    # Shapes that are looked up and views that are made take longer here than on the device.
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    summed = y if residual is None else torch.empty_like(y)
    other = x if second is None else second
    other_y = y if second is None else torch.empty_like(other, memory_format=torch.contiguous_format)
    other_heads = 0 if second is None else other.shape[2]
    n = batches * tokens
    if n and (heads or other_heads) and width:
        sizes = _sizes(heads, other_heads, width, half, cos.shape[-1], interleaved)
        row = sizes["ROW_P2"]

        def grid(meta: Any) -> tuple[int, int]:
            at_once = heads_at_once(meta["BLOCK_SIZE"], sizes["WIDTH"], row, whole_row)
            blocks = -(-heads // at_once) - (-other_heads // at_once)
            return -(-n // meta["ROWS"]), blocks

        strides = x_batch, x_token, x_head, _ = x.stride()
        added_batch, added_token = strides[:2] if residual is None else residual.stride()[:2]
        other_batch, other_token, other_head, _ = strides if second is None else second.stride()
        rmsnorm_rope_kernel[grid](
            x, weight, cos, sin, y, x if residual is None else residual, summed, other,
            weight if second is None else second_weight, other_y, n, tokens,
            x_batch, x_token, x_head, added_batch, added_token,
            other_batch, other_token, other_head, cos.shape[0], cos.stride(0), eps,
            H2=other_heads, WHOLE_ROW=whole_row, RESIDUAL=residual is not None, **sizes,
        )
    return y, summed, other_y


def backward(
    x: Any, weight: Any, cos: Any, sin: Any, eps: float, half: int, interleaved: bool,
    whole_row: bool, dy: Any, added: Any = None,
) -> tuple[Any, Any]:
    """The gradients of `x` and `weight`; `added` goes to that of `x`."""
    x, dy = x.contiguous(), dy.contiguous()
    batches, tokens, heads, width = x.shape
    dx, n = torch.empty_like(x), batches * tokens
    if not n or not heads or not width:
        return dx, torch.zeros_like(weight)
    sizes = dict(_sizes(heads, 0, width, half, cos.shape[-1], interleaved))
    row, pitch = sizes.pop("ROW_P2"), sizes.pop("WIDTH")
    at_once = heads_at_once(2048, pitch, row, whole_row)
    grid = min(n, _BACKWARD_PROGRAMS), -(-heads // at_once)
    parts = grid[0] if whole_row else grid[0] * grid[1]
    shares = torch.empty(parts, weight.numel(), dtype=torch.float32, device=x.device)
    rmsnorm_rope_backward_kernel[grid](
        x, weight, cos, sin, dy, x if added is None else added.contiguous(), dx, shares, n,
        cos.shape[0], cos.stride(0), eps, WHOLE_ROW=whole_row, ADDED=added is not None,
        HEADS=at_once, num_warps=min(16, max(1, at_once * pitch // 512)), **sizes,
    )
    return dx, shares.sum(0).to(weight.dtype)
