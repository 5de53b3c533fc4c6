"""Each kernel against plain torch on small shapes, under Triton's interpreter.

`test_kernels_interpreted.py` runs this file in a process with TRITON_INTERPRET=1, which has to be
set before Triton is imported; `tests/gpu/test_gpu_kernels.py` runs the same properties on a GPU.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
import torch
import triton
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st

from whet.kernels import (
    fp8,
    fp8_triton,
    mlp,
    mlp_triton,
    norm_rope,
    product,
    product_triton,
    sdpa,
    tiles,
)

pytestmark = pytest.mark.slow

DEVICE = "cuda" if os.environ.get("TRITON_INTERPRET") != "1" else "cpu"
EXAMPLES = int(os.environ.get("KERNEL_EXAMPLES", "50"))

# A program takes the interpreter a twentieth of a second.
LARGER, MOST_TOKENS = (16, 60) if DEVICE == "cuda" else (1, 3)

# bfloat16 keeps 8 bits; sums of a few hundred products lose some more.
TOLERANCE = {torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}

bounded = settings(
    max_examples=EXAMPLES,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # under the interpreter shrinking would take minutes
    suppress_health_check=list(HealthCheck),
)


def small(test: Any) -> Any:
    """The same shapes every time; with another KERNEL_SEED others."""
    return seed(int(os.environ.get("KERNEL_SEED", "0")))(bounded(test))


dtypes = st.sampled_from([torch.float32, torch.float32, torch.float16, torch.bfloat16])
on_gpu = DEVICE == "cuda"
halves = st.sampled_from([0, 1, 4, 9, 16, 32, 48, 64]) if on_gpu else st.integers(0, 9)
rests = st.sampled_from([0, 0, 5, 32]) if on_gpu else st.integers(0, 5)
widths = st.sampled_from([1, 5, 16, 40, 64, 80, 128]) if on_gpu else st.integers(1, 8)

# The interpreter has no bfloat16: it multiplies the bits as whole numbers.
exact_products = [torch.float32, torch.float16] + [torch.bfloat16] * (DEVICE == "cuda")
multiplied = st.sampled_from(exact_products)
seldom = st.sampled_from([True] + [False] * 4)
seeds = st.integers(0, 1 << 20)


def made(*shape: int, dtype: Any = torch.float32, strided: bool = False) -> Any:
    """Random numbers; `strided`, every other row and column of more of them."""
    if not strided:
        return torch.randn(*shape, device=DEVICE).to(dtype)
    wide = torch.randn(*[2 * n for n in shape], device=DEVICE).to(dtype)
    return wide[tuple(slice(None, None, 2) for _ in shape)]


def agree(actual: Any, expected: Any, dtype: Any, scale: float = 1.0) -> None:
    pairs = zip(
        actual if isinstance(actual, tuple) else (actual,),
        expected if isinstance(expected, tuple) else (expected,),
        strict=True,
    )
    for one, two in pairs:
        assert one.shape == two.shape
        assert one.dtype == two.dtype
        allowed = TOLERANCE[dtype] * scale
        torch.testing.assert_close(one.float(), two.float(), rtol=allowed, atol=allowed)


def same_gradients(fn: Any, plain: Any, inputs: list[Any], dtype: Any, scale: float = 1.0) -> None:
    for one in inputs:
        one.requires_grad_()
    found = []
    for run in (fn, plain):
        out = run()
        outputs = out if isinstance(out, tuple) else (out,)
        upstream = [
            torch.linspace(0.5, 1.5, one.numel(), device=DEVICE).view(one.shape) for one in outputs
        ]
        upstream = [up.to(one.dtype) for up, one in zip(upstream, outputs, strict=True)]
        found.append(torch.autograd.grad(outputs, inputs, upstream))
    agree(*found, dtype, scale)


def through(implementation: Any, *args: Any, **options: Any) -> Any:
    """The public function, with its checks and views, on one implementation."""
    before = norm_rope.reference, norm_rope.chosen
    norm_rope.reference = norm_rope.chosen = implementation
    try:
        return norm_rope.rmsnorm_rope(*args, **options)
    finally:
        norm_rope.reference, norm_rope.chosen = before


plain_norm = norm_rope.reference


@small
@given(
    batch=st.sampled_from([None, 1, 2]),
    tokens=st.integers(0, MOST_TOKENS),
    heads=st.integers(1, 5),
    half=halves,
    rest=rests,
    twice=st.booleans(),
    interleaved=st.booleans(),
    residual=st.booleans(),
    strided=st.booleans(),
    backward=seldom,
    dtype=dtypes,
    state=seeds,
)
def test_rmsnorm_rope_of_rows(
    batch, tokens, heads, half, rest, twice, interleaved, residual, strided, backward, dtype, state
):
    torch.manual_seed(state)
    width = 2 * half + rest
    if not width:
        return
    leading = (tokens * LARGER,) if batch is None else (batch, tokens)
    x = made(*leading, heads * width, dtype=dtype, strided=strided)
    weight = made(heads * width, dtype=dtype)
    angles = made(leading[-1], half)
    if twice:
        angles = angles.repeat_interleave(2, -1) if interleaved else torch.cat([angles] * 2, -1)
    tables = torch.cos(angles), torch.sin(angles)
    other = made(*leading, heads * width, dtype=dtype) if residual else None
    options: dict[str, Any] = {
        "head_dim": width,
        "rotary_dim": 2 * half,
        "interleaved": interleaved,
        "residual": other,
    }

    def run(implementation: Any) -> Any:
        return through(implementation, x, weight, *tables, **options)

    agree(run(norm_rope.fused), run(plain_norm), dtype)
    if backward and tokens and dtype is torch.float32:
        inputs = [x, weight, *([other] if residual else [])]
        same_gradients(
            lambda: run(norm_rope.fused), lambda: run(plain_norm), inputs, dtype, scale=10
        )


@small
@given(
    batch=st.integers(1, 2),
    tokens=st.integers(0, MOST_TOKENS),
    groups=st.integers(1, 2),
    shared_by=st.integers(1, 3),
    half=halves.filter(bool),
    rest=rests,
    interleaved=st.booleans(),
    by_head=st.booleans(),
    alone=st.booleans(),
    backward=seldom,
    own_tables=st.booleans(),
    dtype=dtypes,
    state=seeds,
)
def test_rmsnorm_rope_of_heads(
    batch, tokens, groups, shared_by, half, rest, interleaved, by_head, alone, backward,
    own_tables, dtype, state,
):  # fmt: skip
    torch.manual_seed(state)
    width = 2 * half + rest

    def of_heads(count: int) -> Any:
        """As it is, or as a view of batch × heads × tokens × width."""
        if by_head:
            return made(batch, count, tokens, width, dtype=dtype).transpose(1, 2)
        return made(batch, tokens, count, width, dtype=dtype)

    x, key = of_heads(groups * shared_by), None if alone else of_heads(groups)
    weight, key_weight = made(width, dtype=dtype), None if alone else made(width, dtype=dtype)
    angles = made(batch, tokens, half) if own_tables else made(tokens, half)
    options: dict[str, Any] = {
        "rotary_dim": 2 * half,
        "interleaved": interleaved,
        "key": key,
        "key_weight": key_weight,
    }

    def run(implementation: Any) -> Any:
        return through(implementation, x, weight, angles.cos(), angles.sin(), **options)

    agree(run(norm_rope.fused), run(plain_norm), dtype)
    if backward and tokens and dtype is torch.float32:
        x, key = x.detach(), None if alone else key.detach()
        options["key"] = key
        inputs = [one for one in (x, weight, key, key_weight) if one is not None]
        same_gradients(
            lambda: run(norm_rope.fused), lambda: run(plain_norm), inputs, dtype, scale=10
        )


WAYS = [
    {"SPLIT_K": split, "PERSISTENT": persistent, "DESCRIPTORS": descriptors}
    for split, persistent, descriptors in itertools.product((1, 2), (False, True), (False, True))
    if split == 1 or not persistent
]


def with_config(kernel: Any, tile: dict[str, Any], run: Any) -> Any:
    return only({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 2, **tile}, kernel, run)


def only(blocks: dict[str, Any], kernel: Any, run: Any) -> Any:
    """With this config: on a GPU nothing is tuned, and no path is left to chance."""
    before = kernel.configs
    kernel.configs = [triton.Config(blocks, num_warps=4, num_stages=3)]
    try:
        return run()
    finally:
        kernel.configs = before


@small
@given(
    m=st.integers(0, 20 * LARGER),
    n=st.integers(0, 50 * LARGER),
    k=st.integers(0, 70 * LARGER),
    rows=st.booleans(),
    strided=st.booleans(),
    way=st.sampled_from(WAYS),
    backward=seldom,
    dtype=multiplied,
    state=seeds,
)
def test_gemm(m, n, k, rows, strided, way, backward, dtype, state):
    torch.manual_seed(state)
    if way["DESCRIPTORS"]:  # whose rows begin at 16 bytes
        n, k, strided = -(-n // 8) * 8, -(-k // 8) * 8, False
    if way["SPLIT_K"] > 1:
        m = min(m, tiles.MOST_ROWS_TO_SPLIT)
    a = made(m, k, dtype=dtype, strided=strided)
    b = made(n, k, dtype=dtype, strided=strided).t() if rows else made(k, n, dtype=dtype)

    def fused() -> Any:
        return with_config(product_triton.gemm_kernel, way, lambda: product.by_triton(a, b))

    scale = max(1.0, k**0.5)
    agree(fused(), product.reference(a, b), dtype, scale)
    if backward and min(m, n, k) and dtype is torch.float32:
        a, b = a.detach(), b.detach()
        same_gradients(fused, lambda: product.reference(a, b), [a, b], dtype, scale)


@small
@given(
    n=st.integers(0, 50 * LARGER),
    k=st.integers(0, 700),
    strided=st.booleans(),
    gated=st.booleans(),
    tile=st.sampled_from([(4, 512, 1), (1, 256, 3), (16, 256, 1), (2, 1024, 1)]),
    backward=seldom,
    dtype=multiplied,
    state=seeds,
)
def test_one_row(n, k, strided, gated, tile, backward, dtype, state):
    torch.manual_seed(state)
    way = dict(zip(("BLOCK_N", "BLOCK_K", "STAGES"), tile, strict=True))
    x, gate, up = made(1, k, dtype=dtype, strided=strided), made(n, k, dtype=dtype), None
    if gated:
        up = made(n, k, dtype=dtype)

    def fused() -> Any:
        def run() -> Any:
            if up is None:
                return product.by_triton(x, gate.t())
            return mlp.by_triton(x, gate, up, "silu")

        return only(way, product_triton.row_kernel, run)

    def plain() -> Any:
        if up is None:
            return product.reference(x, gate.t())
        return mlp.reference(x.float(), gate.float(), up.float(), "silu").to(dtype)

    scale = max(1.0, float(k))
    agree(fused(), plain(), dtype, scale)
    if backward and min(n, k) and dtype is torch.float32:
        x, gate = x.detach(), gate.detach()
        inputs = [x, gate, *([up] if up is not None else [])]
        same_gradients(fused, plain, inputs, dtype, scale)


@small
@given(
    m=st.integers(0, 20 * LARGER),
    n=st.integers(0, 40 * LARGER),
    k=st.integers(0, 70 * LARGER),
    stacked=st.booleans(),
    strided=st.booleans(),
    way=st.sampled_from(WAYS),
    activation=st.sampled_from(["silu", "gelu", "gelu_tanh"]),
    backward=seldom,
    dtype=multiplied,
    state=seeds,
)
def test_gated_mlp(m, n, k, stacked, strided, way, activation, backward, dtype, state):
    torch.manual_seed(state)
    if way["DESCRIPTORS"]:
        k, strided = -(-k // 8) * 8, False
    if way["SPLIT_K"] > 1:
        m = min(m, tiles.MOST_ROWS_TO_SPLIT)
    x = made(m, k, dtype=dtype, strided=strided)
    both = made(2 * n, k, dtype=dtype)
    gate, up = (both[:n], both[n:]) if stacked else (both[:n].clone(), both[n:].clone())

    def with_way(run: Any, *args: Any) -> Any:
        return with_config(mlp_triton.gated_kernel, way, lambda: run(*args, activation))

    def fused() -> Any:
        return with_way(mlp.by_triton, x, gate, up)

    scale = max(1.0, k)
    expected = mlp.reference(x, gate, up, activation)
    agree(fused(), expected, dtype, scale)
    agree(mlp.products_then_kernel(x, gate, up, activation), expected, dtype, scale)
    for run in (mlp.one_product, mlp.product_then_kernel, mlp.stacked_by_triton) if n else ():
        agree(with_way(run, x, both), expected, dtype, scale)
    if backward and min(m, n, k) and dtype is torch.float32:
        whole = both.detach().clone()
        for run in (mlp.product_then_kernel, mlp.stacked_by_triton):
            same_gradients(
                lambda run=run: with_way(run, x, whole),
                lambda: mlp.reference(x, *whole.chunk(2), activation),
                [whole],
                dtype,
                scale,
            )
        inputs = [one.detach().clone() for one in (x, gate, up)]
        x, gate, up = inputs
        same_gradients(fused, lambda: mlp.reference(x, gate, up, activation), inputs, dtype, scale)


@small
@given(
    batch=st.integers(0, 2),
    groups=st.integers(1, 2),
    shared_by=st.integers(1, 3),
    queries=st.integers(0, 20 * LARGER),
    keys=st.integers(0, 80 * LARGER),
    width=widths,
    causal=st.booleans(),
    scale=st.sampled_from([None, 0.3]),
    by_token=st.booleans(),
    backward=seldom,
    dtype=multiplied,
    state=seeds,
)
def test_attention(
    batch, groups, shared_by, queries, keys, width, causal, scale, by_token, backward, dtype, state
):
    torch.manual_seed(state)

    def of_tokens(heads: int, tokens: int) -> Any:
        if by_token:
            return made(batch, tokens, heads, width, dtype=dtype).transpose(1, 2)
        return made(batch, heads, tokens, width, dtype=dtype)

    q, k, v = of_tokens(groups * shared_by, queries), *(of_tokens(groups, keys) for _ in range(2))
    if not keys:
        assert not sdpa.by_triton(q, k, v, causal, scale).any()
        return
    agree(sdpa.by_triton(q, k, v, causal, scale), sdpa.written_out(q, k, v, causal, scale), dtype)
    if backward and q.numel() and dtype is torch.float32:
        inputs = [one.detach().clone() for one in (q, k, v)]
        same_gradients(
            lambda: sdpa.by_triton(*inputs, causal, scale),
            lambda: sdpa.written_out(*inputs, causal, scale),
            inputs,
            dtype,
            scale=10,
        )


e4m3, e5m2 = fp8.DTYPES
scalings = st.sampled_from(["tensor", "row", "group", "block"])


def second_block(m: int, n: int, k: int, scaling: str, way: int, rows: bool, out: Any) -> Any:
    """140 rows or 150 columns reach into a second block of scales. One at a time, since each block
    is found by itself, and both at once would be most of what all kernels take."""
    plain = {"dtypes": (e4m3, e4m3), "biased": False, "activation": None, "fast": True}
    sizes = {"m": m, "n": n, "k": k}
    return example(**sizes, scaling=scaling, way=WAYS[way], rows=rows, out=out, state=1, **plain)


@small
@given(
    m=st.integers(0, 20 * LARGER),
    n=st.integers(0, 40 * LARGER),
    k=st.integers(0, 300 if DEVICE == "cpu" else 1000) | st.integers(0, 100),
    scaling=scalings,
    dtypes=st.sampled_from([(e4m3, e4m3), (e4m3, e5m2), (e5m2, e4m3)]),
    biased=st.booleans(),
    activation=st.sampled_from([None, "silu", "gelu", "gelu_tanh"]),
    fast=st.booleans(),
    rows=st.booleans(),
    out=multiplied,
    way=st.sampled_from(WAYS),
    state=seeds,
)
@second_block(140, 20, 64, "block", 0, True, torch.float32)
@second_block(20, 150, 160, "block", 0, False, torch.float32)
@second_block(140, 40, 160, "group", 1, False, torch.float16)
@second_block(5, 150, 64, "group", 2, True, torch.float16)
@second_block(20, 150, 160, "block", -1, True, torch.float32)
@second_block(140, 9, 32, "row", 3, False, torch.float16)
def test_fp8_gemm(m, n, k, scaling, dtypes, biased, activation, fast, rows, out, way, state):
    torch.manual_seed(state)
    if way["DESCRIPTORS"]:
        k = -(-k // 16) * 16
    if way["SPLIT_K"] > 1:
        m = min(m, tiles.MOST_ROWS_TO_SPLIT)
    x, w = made(m, k), made(n, k)
    for one in (x, w):
        one[128:] /= 4  # the scales of a second block are none of the first
    a, scale_a = fp8.quantize_fp8(x, dtype=dtypes[0], scaling=scaling)
    of_weight = "block" if scaling == "group" else scaling
    b, scale_b = fp8.quantize_fp8(w, dtype=dtypes[1], scaling=of_weight)
    b = b.t() if rows else b.t().contiguous()
    bias = made(n, dtype=out) if biased else None
    options = {"bias": bias, "activation": activation, "out_dtype": out, "fast_accum": fast}
    found = []

    def caught(*args: Any) -> Any:
        found.append(args)
        return fp8.reference(*args)

    expected = through_fp8(caught, a, b, scale_a, scale_b.t(), **options)
    assert expected.shape == (m, n)
    if not k:
        return
    for run in (fp8.by_triton, fp8.by_torch, fp8.by_scaling_first):
        actual = with_config(fp8_triton.fp8_gemm_kernel, way, lambda run=run: run(*found[0]))
        # Tensor cores add products of fp8 with some 14 bits.
        exact = torch.float16 if on_gpu and out is torch.float32 else out
        agree(actual, expected, exact, max(1.0, k**0.5) * (4 if dtypes != (e4m3, e4m3) else 1))


def through_fp8(implementation: Any, *args: Any, **options: Any) -> Any:
    """The public function, with its checks and views, on one implementation."""
    before = fp8.by_torch, fp8.chosen
    fp8.by_torch = fp8.chosen = implementation
    try:
        return fp8.fp8_gemm(*args, **options)
    finally:
        fp8.by_torch, fp8.chosen = before


@small
@given(
    m=st.integers(0, 6 * LARGER),
    k=st.integers(0, 400),
    group=st.booleans(),
    given_scale=st.booleans(),
    dtype=dtypes,
    to=st.sampled_from([e4m3, e5m2]),
    odd=st.sampled_from([None, float("nan"), float("inf"), -1e30, 0.0]),
    strided=st.booleans(),
    activation=st.sampled_from([None, None, "silu", "gelu", "gelu_tanh"]),
    state=seeds,
)
def test_quantize_fp8(m, k, group, given_scale, dtype, to, odd, strided, activation, state):
    torch.manual_seed(state)
    x = made(m, k, dtype=dtype, strided=strided)
    gate = None if activation is None else made(m, k, dtype=dtype, strided=not strided)
    if odd is not None and x.numel():
        x[m // 2] = 0.0 if odd == 0.0 else x[m // 2]
        x[m // 2, k // 2] = odd
    scale = torch.tensor(0.01, device=DEVICE) if given_scale else None
    scaling = "group" if group else "row"
    q, scales = fp8.quantized_by_triton(x, to, scaling, scale, gate, activation)
    expected, of_torch = fp8.quantized_by_torch(x, to, scaling, scale, gate, activation)
    torch.testing.assert_close(scales, of_torch, rtol=1e-6 if gate is None else 1e-4, atol=0)
    actual, expected = q.float(), expected.float()
    if DEVICE == "cpu":  # the interpreter's casts forget to carry into the exponent, and NaN
        powers = expected.abs().log2().frac() == 0
        wrong = (powers & (actual * 2 == expected)) | expected.isnan()
        actual = torch.where(wrong, expected, actual)
    # The same number, or the next where the quotient is rounded differently.
    step = 0.13 if to is e4m3 else 0.26
    torch.testing.assert_close(actual, expected, rtol=step, atol=1e-2, equal_nan=True)
    assert (actual.isnan() == x.isnan()).all()


def compiled(fn: Any) -> Any:
    """In one graph or not at all."""
    return torch.compile(fn, backend="aot_eager", fullgraph=True)


def test_compiled_kernels_and_their_gradients_are_the_same():
    torch.manual_seed(0)
    x, gate, up = (made(*size) for size in ((5, 32), (8, 32), (8, 32)))
    q, k, v = made(1, 2, 5, 8), made(1, 1, 6, 8), made(1, 1, 6, 8)
    row, weight, cos, sin = made(4, 16), made(16), made(4, 4), made(4, 4)
    cases: list[tuple[Any, Any, list[Any]]] = [
        (product.by_triton, product.reference, [x, made(32, 16)]),
        (
            lambda *tensors: mlp.by_triton(*tensors, "silu"),
            lambda *tensors: mlp.reference(*tensors, "silu"),
            [x, gate, up],
        ),
        (
            lambda *tensors: mlp.products_then_kernel(*tensors, "gelu"),
            lambda *tensors: mlp.reference(*tensors, "gelu"),
            [x, gate, up],
        ),
        (
            lambda *tensors: sdpa.by_triton(*tensors, True, None),
            lambda *tensors: sdpa.written_out(*tensors, True, None),
            [q, k, v],
        ),
        (
            lambda a, b: norm_rope.fused(a, b, cos, sin, 1e-6, 8, None, False),
            lambda a, b: plain_norm(a, b, cos, sin, 1e-6, 8, None, False),
            [row, weight],
        ),
    ]
    for fused, plain, tensors in cases:
        run = compiled(fused)
        agree(run(*tensors), plain(*tensors), torch.float32, scale=20)
        again = [one.detach().clone() for one in tensors]
        same_gradients(
            lambda run=run, again=again: run(*again),
            lambda plain=plain, again=again: plain(*again),
            again,
            torch.float32,
            scale=20,
        )
