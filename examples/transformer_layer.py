"""A transformer layer, once in plain torch and once over `whet.kernels`, side by side.

    python examples/transformer_layer.py                      a small one, on whatever there is
    python examples/transformer_layer.py --like qwen3-8b      batch 8 × 2,048 tokens, on a GPU
    python examples/transformer_layer.py --like qwen3-8b --decode    1 token, 4,096 in the cache

The layer is Qwen3's: RMS norm, queries, keys and values in one product, each head normed and
rotated, attention with shared key heads, a gated MLP. `fp8` rows use weights of one byte with a
scale for each row, and turn activations into fp8 as they go. Prints for each form the time of a
call, how many kernels it launches, and how far its result is from the same layer in float64.
`--picture OUT.svg` draws the kernels of one call of each form on a common time axis.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import whet
from whet.kernels import attention, fp8_gemm, gated_mlp, gemm, quantize_fp8, rmsnorm_rope

EPS = 1e-6


@dataclass(frozen=True)
class Sizes:
    hidden: int
    inner: int
    heads: int
    key_heads: int
    head: int
    batch: int
    tokens: int
    cached: int = 0


SIZES = {
    "tiny": Sizes(64, 192, 4, 2, 16, 2, 24),
    "small": Sizes(512, 1536, 8, 2, 64, 2, 256),
    "qwen3-8b": Sizes(4096, 12288, 32, 8, 128, 8, 2048),
}


@dataclass(frozen=True)
class Weights:
    """As `torch.nn.Linear` has them: out × in."""

    norm: Any
    qkv: Any
    q_norm: Any
    k_norm: Any
    out: Any
    mlp_norm: Any
    gate_up: Any
    down: Any

    def to(self, **how: Any) -> Weights:
        return Weights(**{name: one.to(**how) for name, one in vars(self).items()})


@dataclass(frozen=True)
class Inputs:
    """`keys` and `values` are the cache, batch × key heads × cached × head; empty without one."""

    x: Any
    cos: Any
    sin: Any
    keys: Any
    values: Any

    def to(self, **how: Any) -> Inputs:
        return Inputs(**{name: one.to(**how) for name, one in vars(self).items()})


def made(sizes: Sizes) -> tuple[Weights, Inputs]:
    torch.manual_seed(0)
    queries, keys = sizes.heads * sizes.head, sizes.key_heads * sizes.head

    def weight(out: int, into: int) -> Any:
        return torch.randn(out, into) / into**0.5

    def scale(length: int) -> Any:
        return 1 + 0.1 * torch.randn(length)

    weights = Weights(
        scale(sizes.hidden),
        weight(queries + 2 * keys, sizes.hidden),
        scale(sizes.head),
        scale(sizes.head),
        weight(sizes.hidden, queries),
        scale(sizes.hidden),
        weight(2 * sizes.inner, sizes.hidden),
        weight(sizes.hidden, sizes.inner),
    )
    places = torch.arange(sizes.cached, sizes.cached + sizes.tokens)
    speeds = 10_000 ** (-torch.arange(0, sizes.head, 2) / sizes.head)
    angles = places[:, None] * speeds
    cache = (sizes.batch, sizes.key_heads, sizes.cached, sizes.head)
    x = torch.randn(sizes.batch, sizes.tokens, sizes.hidden)
    return weights, Inputs(x, angles.cos(), angles.sin(), torch.randn(cache), torch.randn(cache))


def split(qkv: Any, sizes: Sizes) -> tuple[Any, Any, Any]:
    """Batch × tokens × heads × head, as views."""
    heads = [sizes.heads, sizes.key_heads, sizes.key_heads]
    every = qkv.view(sizes.batch, -1, sum(heads), sizes.head)
    q, k, v = every.split(heads, 2)
    return q, k, v


def plain(w: Weights, i: Inputs, sizes: Sizes) -> Any:
    """Torch's own operations, one after another."""

    def rotated(t: Any) -> Any:
        a, b = t.chunk(2, -1)
        cos, sin = i.cos[:, None], i.sin[:, None]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    normed = functional.rms_norm(i.x, (sizes.hidden,), w.norm, EPS)
    q, k, v = split(functional.linear(normed, w.qkv), sizes)
    q = rotated(functional.rms_norm(q, (sizes.head,), w.q_norm, EPS))
    k = rotated(functional.rms_norm(k, (sizes.head,), w.k_norm, EPS))
    keys, values = cached(i, k.transpose(1, 2), v.transpose(1, 2), sizes)
    seen = functional.scaled_dot_product_attention(
        q.transpose(1, 2), keys, values, is_causal=not sizes.cached, enable_gqa=True
    )
    x = i.x + functional.linear(seen.transpose(1, 2).flatten(2), w.out)
    normed = functional.rms_norm(x, (sizes.hidden,), w.mlp_norm, EPS)
    gate, up = functional.linear(normed, w.gate_up).chunk(2, -1)
    return x + functional.linear(functional.silu(gate) * up, w.down)


def cached(i: Inputs, keys: Any, values: Any, sizes: Sizes) -> tuple[Any, Any]:
    if not sizes.cached:
        return keys, values
    return torch.cat([i.keys, keys], 2), torch.cat([i.values, values], 2)


Product = Callable[[Any], Any]


@dataclass(frozen=True)
class Products:
    """The four products of a layer; `mlp` is gate, up, activation and down."""

    qkv: Product
    out: Product
    mlp: Product


def products_of(w: Weights) -> Products:
    return Products(
        lambda x: gemm(x, w.qkv.t()),
        lambda x: gemm(x, w.out.t()),
        lambda x: gated_mlp(x, w.gate_up, None, w.down),
    )


def fp8_products_of(w: Weights) -> Products:
    """Weights of one byte, a scale for each of their rows; activations a scale for each token."""

    def product(weight: Any) -> Callable[..., Any]:
        q, scale = quantize_fp8(weight, scaling="row")

        def call(x: Any, gate: Any = None) -> Any:
            a, of_rows = quantize_fp8(x, scaling="row", gate=gate)
            return fp8_gemm(a, q.t(), of_rows, scale.t(), out_dtype=x.dtype)

        return call

    gate_up, down = product(w.gate_up), product(w.down)

    def mlp(x: Any) -> Any:
        gate, up = gate_up(x).chunk(2, -1)
        return down(up, gate)

    return Products(product(w.qkv), product(w.out), mlp)


def fused(products: Products, w: Weights, i: Inputs, sizes: Sizes) -> Any:
    """The same over `whet.kernels`. Without a rotary part, `rmsnorm_rope` is an RMS norm."""
    none = i.cos[:, :0]
    bare: dict[str, Any] = {"head_dim": sizes.hidden, "rotary_dim": 0, "eps": EPS}
    normed = rmsnorm_rope(i.x, w.norm, none, none, **bare)
    q, k, v = split(products.qkv(normed), sizes)
    q, k = rmsnorm_rope(q, w.q_norm, i.cos, i.sin, key=k, key_weight=w.k_norm, eps=EPS)
    keys, values = cached(i, k.transpose(1, 2), v.transpose(1, 2), sizes)
    seen = attention(q.transpose(1, 2), keys, values, causal=not sizes.cached)
    out = products.out(seen.transpose(1, 2).flatten(2))
    normed, x = rmsnorm_rope(out, w.mlp_norm, none, none, residual=i.x, **bare)
    return x + products.mlp(normed)


@dataclass
class Form:
    """One way to run the layer. `launches` and `kernels` are of one call, by torch's profiler."""

    name: str
    us: float
    launches: int
    error: float
    kernels: list[tuple[str, float, float]]


def forms(w: Weights, i: Inputs, sizes: Sizes) -> dict[str, Callable[[], Any]]:
    products, of_fp8 = products_of(w), fp8_products_of(w)
    mode = "max-autotune-no-cudagraphs" if i.x.is_cuda else "default"
    compiled = torch.compile(plain, mode=mode, dynamic=False)
    return {
        "torch": lambda: plain(w, i, sizes),
        "torch.compile": lambda: compiled(w, i, sizes),
        "whet": lambda: fused(products, w, i, sizes),
        "whet, fp8": lambda: fused(of_fp8, w, i, sizes),
    }


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), whet.cost("graph"):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()

    def replay() -> Any:
        graph.replay()
        return out

    return replay


def microseconds(calls: dict[str, Callable[[], Any]], on_gpu: bool) -> dict[str, float]:
    """The median of each, called in turns for half a second apiece: a clock that falls, falls for
    all."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + 0.5 * len(calls)
    while len(next(iter(taken.values()))) < 5 or time.perf_counter() < end:
        for name, call in calls.items():
            taken[name].append(_once(call, on_gpu))
    return {name: statistics.median(times) for name, times in taken.items()}


def _once(call: Callable[[], Any], on_gpu: bool) -> float:
    if not on_gpu:
        begin = time.perf_counter()
        call()
        return 1e6 * (time.perf_counter() - begin)
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    call()
    stop.record()
    torch.cuda.synchronize()
    return 1e3 * float(start.elapsed_time(stop))


def launched(call: Callable[[], Any], on_gpu: bool) -> list[tuple[str, float, float]]:
    """Name, start and length in microseconds of what one call runs."""
    from torch.profiler import ProfilerActivity, profile

    kind = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    call()
    with profile(activities=[kind]) as seen:
        call()
        if on_gpu:
            torch.cuda.synchronize()
    events = [
        one
        for one in seen.events() or ()
        if (str(one.device_type).endswith("CUDA") if on_gpu else not one.cpu_children)
    ]
    begin = min((one.time_range.start for one in events), default=0.0)
    return [
        (one.name, one.time_range.start - begin, one.time_range.end - one.time_range.start)
        for one in events
    ]


def compared(sizes: Sizes, device: str, dtype: Any) -> list[Form]:
    weights, inputs = made(sizes)
    w, i = weights.to(dtype=dtype, device=device), inputs.to(dtype=dtype, device=device)
    exact_as: dict[str, Any] = {"dtype": torch.float64, "device": device}
    exact = plain(weights.to(**exact_as), inputs.to(**exact_as), sizes)
    on_gpu = device == "cuda"
    runs: dict[str, Callable[[], Any]] = {}
    for name, call in forms(w, i, sizes).items():
        begin = time.perf_counter()
        if on_gpu and name.startswith("whet"):
            with whet.cost("graph"):
                print(f"{name}: {whet.warmup(call)}", file=sys.stderr)
        else:
            call()
            print(f"{name}: ready after {time.perf_counter() - begin:.1f} s", file=sys.stderr)
        runs[f"{name}, eager"] = call
        if on_gpu:
            runs[f"{name}, graph"] = captured(call)
    took = microseconds(runs, on_gpu)
    found = []
    for name, run in runs.items():
        error = float((run().double() - exact).norm() / exact.norm())
        kernels = launched(run, on_gpu)
        found.append(Form(name, took[name], len(kernels), error, kernels))
    return found


def table(found: list[Form]) -> str:
    lines = [f"{'form':24} {'time':>10} {'speed':>7} {'launches':>9} {'error':>9}"]
    lines += [
        f"{one.name:24} {one.us:>7.1f} µs {found[0].us / one.us:>6.2f}× {one.launches:>9} "
        f"{one.error:>9.1e}"
        for one in found
    ]
    return "\n".join(lines)


def picture(found: list[Form], wide: int = 1000) -> str:
    """One lane for each form, on a common axis; the same kernel has the same colour."""
    longest = max((start + took for one in found for _, start, took in one.kernels), default=1.0)
    lane, top, left = 34, 24, 190
    shapes = []
    for place, one in enumerate(found):
        y = top + place * lane
        shapes.append(f'<text x="4" y="{y + 15}">{one.name}</text>')
        for name, start, took in one.kernels:
            x, width = left + wide * start / longest, max(0.5, wide * took / longest)
            hue = sum(map(ord, name)) * 47 % 360
            shapes.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.2f}" height="22" '
                f'fill="hsl({hue} 55% 60%)"><title>{_escaped(name)} {took:.1f} µs</title></rect>'
            )
    high = top + len(found) * lane
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + wide + 10} {high}" '
        f'font-family="sans-serif" font-size="12"><text x="{left}" y="14">0 to {longest:.0f} µs'
        f"</text>{''.join(shapes)}</svg>\n"
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--like", choices=SIZES, default="small")
    parser.add_argument("--decode", action="store_true", help="1 token, 4,096 in the cache")
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--picture", type=Path)
    asked = parser.parse_args()
    sizes = SIZES[asked.like]
    if asked.decode:
        sizes = Sizes(**{**vars(sizes), "batch": 1, "tokens": 1, "cached": 4096})
    device = asked.device or ("cuda" if torch.cuda.is_available() else "cpu")
    with torch.no_grad():
        found = compared(sizes, device, torch.bfloat16 if device == "cuda" else torch.float32)
    print(f"batch {sizes.batch} × {sizes.tokens} tokens × {sizes.hidden}, on {device}")
    print(table(found))
    if asked.picture:
        asked.picture.write_text(picture(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
