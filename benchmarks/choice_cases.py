"""The pairs of `benchmarks/choice_checks.py`: what torch has, written by hand, right and wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

T = Any  # a tensor
Call = Callable[..., Any]
ALL = ("float32", "bfloat16", "float16")
FINER = ("float32", "float16")  # what bfloat16 cannot show
FINE = ("float32",)
WIDE = ("float32", "bfloat16")  # where float16 overflows


@dataclass(frozen=True)
class Case:
    """`first` is the reference; `dtypes` are those in which the other one shows what it is."""

    name: str
    first: Call
    other: Call
    make: Callable[[], tuple[Any, ...]]
    dtypes: tuple[str, ...] = ALL


def rows(*more: tuple[int, ...], scale: float = 1.0) -> Callable[[], tuple[Any, ...]]:
    """64 rows of 256, and weights."""
    return lambda: (scale * torch.randn(64, 256), *(torch.randn(size) for size in more))


def labelled() -> tuple[Any, ...]:
    return 3 * torch.randn(64, 128), torch.randint(0, 128, (64,))


def heads() -> tuple[Any, ...]:
    return tuple(torch.randn(2, 4, 48, 32) for _ in range(3))


def products() -> tuple[Any, ...]:
    return torch.randn(48, 512), torch.randn(512, 40)


def images() -> tuple[Any, ...]:
    return torch.randn(2, 8, 12, 12), torch.randn(16, 8, 3, 3), torch.randn(16)


def embedded() -> tuple[Any, ...]:
    return torch.randint(0, 96, (4, 40)), torch.randn(96, 64)


def two() -> tuple[Any, ...]:
    return torch.randn(64, 256), torch.randn(64, 256)


def chances() -> tuple[Any, ...]:
    return 2 * torch.randn(64, 256), torch.rand(64, 256)


def angles() -> tuple[Any, ...]:
    turned = torch.outer(torch.arange(48.0), 10000.0 ** -torch.linspace(0, 1, 16))
    return torch.randn(2, 4, 48, 32), turned.cos(), turned.sin()


def softmax(x: T) -> T:
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def log_softmax(x: T) -> T:
    low = x - x.amax(-1, keepdim=True)
    return low - low.exp().sum(-1, keepdim=True).log()


def layer_norm(x: T, w: T, b: T, *, eps: float = 1e-5, ddof: int = 0) -> T:
    off = x - x.mean(-1, keepdim=True)
    var = off.square().sum(-1, keepdim=True) / (x.shape[-1] - ddof)
    return off * torch.rsqrt(var + eps) * w + b


def rms_norm(x: T, w: T, eps: float = 1e-6) -> T:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


def group_norm(x: T) -> T:
    parts = x.view(64, 8, 32)
    off = parts - parts.mean(-1, keepdim=True)
    return (off / (off.square().mean(-1, keepdim=True) + 1e-5).sqrt()).view(64, 256)


def batch_norm(x: T, w: T, b: T) -> T:
    off = x - x.mean(0)
    return off / (off.square().mean(0) + 1e-5).sqrt() * w + b


def attention(q: T, k: T, v: T, *, scale: float | None = None, diagonal: int | None = None) -> T:
    scores = q @ k.transpose(-2, -1) * (scale or q.shape[-1] ** -0.5)
    if diagonal is not None:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(diagonal)
        scores = scores.masked_fill(hidden, -math.inf)
    return scores.softmax(-1) @ v


def causal(q: T, k: T, v: T) -> T:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def online_attention(q: T, k: T, v: T, *, rescaled: bool = True) -> T:
    """Block by block, as fused kernels do."""
    out, total = torch.zeros_like(q, dtype=torch.float32), torch.zeros(*q.shape[:-1], 1)
    most = torch.full_like(total, -math.inf)
    for start in range(0, k.shape[-2], 16):
        block = slice(start, start + 16)
        scores = (q @ k[..., block, :].transpose(-2, -1)).float() * q.shape[-1] ** -0.5
        new = torch.maximum(most, scores.amax(-1, keepdim=True))
        p, shrink = (scores - new).exp(), (most - new).exp()
        total = total * shrink + p.sum(-1, keepdim=True)
        out = out * (shrink if rescaled else 1) + p @ v[..., block, :].float()
        most = new
    return (out / total).to(q.dtype)


def cross_entropy(x: T, y: T) -> T:
    return -log_softmax(x).gather(-1, y[:, None]).mean()


def gelu_tanh(x: T, c: float = 0.044715) -> T:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + c * x**3)))


def gelu(x: T) -> T:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def tanh_by_torch(x: T) -> T:
    return F.gelu(x, approximate="tanh")


def silu(x: T) -> T:
    return x / (1 + (-x).exp())


def softplus(x: T) -> T:
    return x.clamp(min=0) + torch.log1p((-x.abs()).exp())


def logsumexp(x: T) -> T:
    most = x.amax(-1, keepdim=True)
    return (x - most).exp().sum(-1).log() + most[:, 0]


def blocked(a: T, b: T, *, width: int = 64, narrow: bool = False) -> T:
    """A sum of products of slices; `narrow` keeps it in bfloat16 meanwhile."""
    total: Any = 0.0
    for start in range(0, a.shape[1], width):
        part = slice(start, start + width)
        total = total + a[:, part].float() @ b[part].float()
        total = total.bfloat16().float() if narrow else total
    return total.to(a.dtype)


def unfolded(x: T, w: T, b: T) -> T:
    flat = F.unfold(x, 3, padding=1)
    return (w.flatten(1) @ flat + b[:, None]).view(2, 16, 12, 12)


def rotated(x: T, cos: T, sin: T, sign: float = 1.0) -> T:
    one, other = x[..., :16], x[..., 16:]
    return torch.cat([one * cos - other * sin, other * cos + sign * one * sin], -1)


def rotated_as_complex(x: T, cos: T, sin: T) -> T:
    both = torch.complex(x[..., :16].float(), x[..., 16:].float())
    out = both * torch.complex(cos.float(), sin.float())
    return torch.cat([out.real, out.imag], -1).to(x.dtype)


def bce(x: T, y: T) -> T:
    return (softplus(x) - x * y).mean()


def swiglu(x: T, w: T, v: T) -> T:
    return silu(x @ w) * (x @ v)


def dropped(x: T, keep: float = 0.75, scale: float = 1 / 0.75) -> T:
    return x * (torch.rand(x.shape) < keep) * scale


def add_norm(x: T, y: T) -> T:
    """Writes to its first argument."""
    with torch.no_grad():
        x.add_(y)
    return y * x.detach().norm(dim=-1, keepdim=True)


def add_norm_by_hand(x: T, y: T, alpha: float = 1.0) -> T:
    with torch.no_grad():
        x.copy_(y * alpha + x)
    return y * x.detach().float().square().sum(-1, keepdim=True).sqrt().to(y.dtype)


def top(x: T) -> Any:
    return torch.topk(x, 5)


def top_by_sort(x: T, shift: int = 0) -> Any:
    values, places = x.float().sort(dim=-1, descending=True, stable=True)
    return values[:, :5].to(x.dtype), places[:, shift : 5 + shift]


def distinct() -> tuple[Any, ...]:
    """Values that are different in every dtype."""
    return (torch.stack([torch.randperm(256) for _ in range(64)]).float() / 8,)


def under_autocast(fn: Call) -> Call:
    def call(*args: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return fn(*args)

    return call


def linear(x: T, w: T, b: T) -> T:
    return F.linear(x, w, b)


class _Own(torch.autograd.Function):  # type: ignore[misc]
    """A function with a backward of its own, for what goes wrong there."""

    @staticmethod
    def forward(ctx: Any, forward: Call, backward: Call, *args: Any) -> Any:
        ctx.save_for_backward(*args)
        ctx.own = backward
        return forward(*args)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, *ctx.own(grad, *ctx.saved_tensors)


def own(forward: Call, backward: Call) -> Call:
    return lambda *args: _Own.apply(forward, backward, *args)


def softmax_grad(grad: T, x: T, *, summed: bool = True) -> Any:
    y = x.float().softmax(-1)
    inner = (grad * y).sum(-1, keepdim=True) if summed else 0.0
    return ((y * (grad - inner)).to(x.dtype),)


def norm_grad(grad: T, x: T, w: T, *, whole: bool = True, rows: int = 64) -> Any:
    x, w, g = x.float(), w.float(), grad.float()
    r = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    dot = (g * w * x).mean(-1, keepdim=True) if whole else 0.0
    dx = r * g * w - r**3 * x * dot
    return dx.to(grad.dtype), (g * x * r)[:rows].sum(0).to(grad.dtype)


def zeroed(fn: Call, *place: Any) -> Call:
    """Its result without one part, as where a kernel forgets the rest of a block."""

    def call(*args: Any) -> Any:
        out = fn(*args)
        keep = torch.ones_like(out)
        keep[place] = 0
        return out * keep

    return call


def zeroed_argument(fn: Call, place: int) -> Call:
    def call(*args: Any) -> Any:
        keep = torch.ones_like(args[place])
        keep[-32:] = 0
        return fn(*(one * keep if at == place else one for at, one in enumerate(args)))

    return call


def softmax_detached(x: T) -> T:
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True).detach()


def layer_norm_detached(x: T, w: T, b: T) -> T:
    off = x - x.mean(-1, keepdim=True).detach()
    return off * torch.rsqrt(off.square().mean(-1, keepdim=True) + 1e-5) * w + b


def attention_of_fewer(q: T, k: T, v: T) -> T:
    return attention(q, k[..., :-1, :], v[..., :-1, :])


def smoothed(x: T, y: T) -> T:
    return F.cross_entropy(x, y, label_smoothing=0.05)


def last_only(grad: T, places: T, w: T) -> Any:
    """Of a row that is read twice, one gradient overwrites the other."""
    out = torch.zeros_like(w)
    out[places.flatten()] = grad.flatten(0, 1)
    return None, out


def first_row(grad: T, x: T, w: T, b: T) -> Any:
    return grad @ w, grad.T @ x, grad[0] * len(grad)


def cumsum(x: T) -> T:
    return x.cumsum(-1)


def conv(x: T, w: T, b: T) -> T:
    return F.conv2d(x, w, b, padding=1)


def ln(x: T, w: T, b: T) -> T:
    return F.layer_norm(x, (256,), w, b)


def rms(x: T, w: T) -> T:
    return F.rms_norm(x, (256,), w, 1e-6)


def bn(x: T, w: T, b: T) -> T:
    return F.batch_norm(x, None, None, w, b, training=True)


def sm(x: T) -> T:
    return F.softmax(x, -1)


ce = F.cross_entropy
sdpa = F.scaled_dot_product_attention
WEIGHTS = ((256,), (256,))
NORMED, WEIGHTED = (rows((256,)),), (rows(*WEIGHTS),)

RIGHT = (
    Case("softmax", sm, softmax, rows()),
    Case("softmax, wide values", sm, softmax, rows(scale=8)),
    Case("softmax, own backward", sm, own(sm, softmax_grad), rows()),
    Case("log_softmax", lambda x: F.log_softmax(x, -1), log_softmax, rows()),
    Case("layer_norm", ln, layer_norm, rows(*WEIGHTS)),
    Case("layer_norm by hand first", layer_norm, ln, rows(*WEIGHTS)),
    Case("layer_norm of small values", ln, layer_norm, rows(*WEIGHTS, scale=0.02), WIDE),
    Case("rms_norm", rms, rms_norm, rows((256,))),
    Case("rms_norm, own backward", rms, own(rms, norm_grad), rows((256,))),
    Case("group_norm", lambda x: F.group_norm(x, 8), group_norm, rows()),
    Case("batch_norm", bn, batch_norm, rows(*WEIGHTS)),
    Case("attention", sdpa, attention, heads),
    Case("causal attention", causal, partial(attention, diagonal=1), heads),
    Case("attention by blocks", sdpa, online_attention, heads),
    Case("cross_entropy", F.cross_entropy, cross_entropy, labelled),
    Case("gelu", F.gelu, gelu, rows()),
    Case("gelu, tanh", tanh_by_torch, gelu_tanh, rows(scale=2)),
    Case("silu", F.silu, silu, rows(scale=2)),
    Case("softplus", F.softplus, softplus, rows(scale=4)),
    Case("logsumexp", lambda x: x.logsumexp(-1), logsumexp, rows()),
    Case("product by slices", torch.mm, blocked, products),
    Case(
        "three factors",
        lambda x, w, v: x @ w @ v,
        lambda x, w, v: x @ (w @ v),
        rows((256, 32), (32, 48)),
    ),
    Case("convolution", conv, unfolded, images),
    Case("embedding", F.embedding, lambda i, w: F.one_hot(i, 96).to(w.dtype) @ w, embedded),
    Case("rotary", rotated, rotated_as_complex, angles),
    Case("binary cross entropy", F.binary_cross_entropy_with_logits, bce, chances),
    Case(
        "swiglu",
        lambda x, w, v: F.silu(x @ w) * (x @ v),
        swiglu,
        rows((256, 64), (256, 64), scale=0.1),
    ),
    Case("mean", lambda x: x.mean(-1), lambda x: x.sum(-1) / 256, rows()),
    Case("cumsum", cumsum, lambda x: x @ torch.ones(256, 256).triu().to(x), rows()),
    Case("cosine", F.cosine_similarity, lambda a, b: (F.normalize(a) * F.normalize(b)).sum(1), two),
    Case("distance", lambda a, b: (a - b).norm(dim=-1), F.pairwise_distance, two),
    Case(
        "dropout", dropped, lambda x: torch.where(torch.rand(64, 256) < 0.75, x / 0.75, 0), rows()
    ),
    Case("in place", add_norm, add_norm_by_hand, two),
    Case("values and places", top, top_by_sort, distinct),
    Case(
        "linear under autocast",
        under_autocast(linear),
        under_autocast(lambda x, w, b: x @ w.T + b.bfloat16()),
        rows((64, 256), (64,)),
    ),
)

WRONG = (
    Case("softmax of another axis", sm, lambda x: F.softmax(x, 0), rows()),
    Case("softmax at another temperature", sm, lambda x: softmax(x / 1.05), rows(scale=2), FINER),
    Case("softmax, the last column is forgotten", sm, zeroed(sm, ..., -1), rows()),
    Case("softmax, the last row is forgotten", sm, zeroed(sm, -1), rows()),
    Case("softmax, its sum has no gradient", sm, softmax_detached, rows()),
    Case(
        "softmax, backward without the sum",
        sm,
        own(sm, partial(softmax_grad, summed=False)),
        rows(),
    ),
    Case("log_softmax, 1 % more", log_softmax, lambda x: log_softmax(x * 1.01), rows(), FINE),
    Case("layer_norm, n - 1", ln, partial(layer_norm, ddof=1), rows(*WEIGHTS), FINE),
    Case("layer_norm, another eps", ln, partial(layer_norm, eps=1e-6), rows(*WEIGHTS, scale=0.005)),
    Case("layer_norm, mean has no gradient", ln, layer_norm_detached, rows(*WEIGHTS), FINER),
    Case("layer_norm, the last biases are forgotten", ln, zeroed_argument(ln, 2), rows(*WEIGHTS)),
    Case("rms_norm, wrong backward", rms, own(rms, partial(norm_grad, whole=False)), rows((256,))),
    Case("rms_norm, a row less", rms, own(rms, partial(norm_grad, rows=63)), rows((256,))),
    Case("rms_norm, n - 1", rms, lambda x, w: rms_norm(x, w) * (255 / 256) ** 0.5, *NORMED, FINE),
    Case("group_norm of other groups", group_norm, lambda x: F.group_norm(x, 4), rows()),
    Case("batch_norm, n - 1", bn, lambda x, w, b: bn(x, w * (63 / 64) ** 0.5, b), *WEIGHTED, FINE),
    Case("attention, another scale", sdpa, partial(attention, scale=33**-0.5), heads, FINE),
    Case("attention without the last key", sdpa, attention_of_fewer, heads),
    Case(
        "attention by blocks, not rescaled", sdpa, partial(online_attention, rescaled=False), heads
    ),
    Case("causal attention, one token ahead", causal, partial(attention, diagonal=2), heads),
    Case("cross_entropy, smoothed", F.cross_entropy, smoothed, labelled, FINER),
    Case("cross_entropy, a row less", F.cross_entropy, lambda x, y: ce(x[:63], y[:63]), labelled),
    Case("gelu by tanh", F.gelu, tanh_by_torch, rows(), FINE),
    Case("gelu, another constant", tanh_by_torch, partial(gelu_tanh, c=0.044), rows(), FINE),
    Case("silu, made of lines", F.silu, F.hardswish, rows()),
    Case("softplus, cut", F.softplus, partial(F.softplus, threshold=4), rows(scale=4), FINE),
    Case("logsumexp of fewer", logsumexp, lambda x: logsumexp(x[:, :-1]), rows(), FINER),
    Case("product, summed narrowly", torch.mm, partial(blocked, narrow=True), products, FINE),
    Case("product, the last term is missing", torch.mm, lambda a, b: a[:, :-1] @ b[:-1], products),
    Case("product, one element", torch.mm, zeroed(torch.mm, 5, 7), products),
    Case("convolution, mirrored", conv, lambda x, w, b: conv(x, w.flip(-1), b), images),
    Case("embedding, the last gradient counts", F.embedding, own(F.embedding, last_only), embedded),
    Case("rotary, another sign", rotated, partial(rotated, sign=-1.0), angles),
    Case("mean of n - 1", lambda x: x.mean(-1), lambda x: x.sum(-1) / 255, rows(), FINE),
    Case("cumsum that begins with 0", cumsum, lambda x: cumsum(x) - x, rows()),
    Case("dropout, not scaled", dropped, partial(dropped, scale=1.0), rows()),
    Case("in place, 1 % less", add_norm, partial(add_norm_by_hand, alpha=0.99), two, FINE),
    Case("places, one off", top, partial(top_by_sort, shift=1), distinct),
    Case("no gradient", F.silu, lambda x: F.silu(x.detach()), rows()),
    Case("gradient of ones", F.silu, own(F.silu, lambda g, x: (torch.ones_like(g),)), rows()),
    Case("bias, first row for all", linear, own(linear, first_row), rows((64, 256), (64,))),
    Case("float32 for all", sm, lambda x: sm(x).float(), rows(), ("bfloat16", "float16")),
)
