"""The kernels of `whet.kernels` against what else there is, on a GPU.

    python benchmarks/kernels.py [gemm] [norm] [mlp] [dispatch] [host] [layer] [--samples 40]
                                 [--json FILE] [--library FOLDER] [--store FILE]

Without names, all parts but `layer`, which needs a library with a gated MLP: `--library` is a
folder with `fla` or `transformers` in it, where they are not installed. `host` is what a call costs
the host, beside torch's operator for it, in ten shapes. Everything is tuned first,
for CUDA graphs. Then all alternatives of a shape are captured in graphs and replayed in one
interleaved run by the referee, from a cold L2; a ratio is of trimmed means, with the 95 % interval
of its logarithm over the rounds. What is wanted is in the last column.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from referee import EVENTS_US, time_many, trimmed_mean

Call = Callable[[], Any]
Row = dict[str, Any]

WEIGHTS = ((4096, 4096), (14336, 4096), (4096, 14336))
ROWS = (16, 64, 512, 4096)
TOKENS = (512, 8192, 65536)
HIDDEN, HEAD = 4096, 128
FEW_ROWS = (1, 2, 4, 8, 16, 32, 48, 64, 128, 256)
PARTS = ("gemm", "norm", "mlp", "dispatch", "host", "layer")


def captured(call: Call) -> tuple[Call, Any]:
    """A replay of the call, and what it writes to."""
    import torch

    import whet

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), whet.cost("graph"):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    return graph.replay, (graph, out)


def timed(calls: Mapping[str, Call], samples: int) -> dict[str, list[float]]:
    """Microseconds by name, without what a pair of events costs."""
    made = {name: captured(call) for name, call in calls.items()}
    taken = time_many({name: one[0] for name, one in made.items()}, samples)
    return {name: [max(0.1, us - EVENTS_US) for us in times] for name, times in taken.items()}


def ratio(one: Sequence[float], two: Sequence[float]) -> tuple[float, float, float]:
    """Of two alternatives sampled in the same rounds, with its interval."""
    logs = [math.log(a / b) for a, b in zip(one, two, strict=True)]
    logs = sorted(logs)[len(logs) // 10 : len(logs) - len(logs) // 10]
    middle = statistics.fmean(logs)
    half = 1.96 * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def random_tensor(*shape: int) -> Any:
    import torch

    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / math.sqrt(shape[-1])


def means(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: round(trimmed_mean(list(taken)), 2) for name, taken in times.items()}


def gemm(samples: int) -> list[Row]:
    """Never more than 1 %, or the interval, slower than the best alternative."""
    import whet
    from whet.kernels import product

    rows: list[Row] = []
    for n, k in WEIGHTS:
        weight = random_tensor(n, k)
        for m in ROWS:
            x = random_tensor(m, k)
            calls: dict[str, Call] = {
                "cublas": partial(product.reference, x, weight.t()),
                "triton": partial(product.by_triton, x, weight.t()),
                "choice": partial(product.gemm, x, weight.t()),
            }
            with whet.cost("graph"):
                calls["choice"]()
            times = timed(calls, samples)
            best = min(("cublas", "triton"), key=lambda name: trimmed_mean(times[name]))
            value, low, high = ratio(times["choice"], times[best])
            pick = list(product.chosen.picks.values())[-1]
            rows.append(
                {
                    "n": n,
                    "k": k,
                    "m": m,
                    "pick": pick,
                    "us": means(times),
                    "choice_over_best": [round(one, 4) for one in (value, low, high)],
                    "ok": value <= 1.01 or low <= 1.0,
                }
            )
            say(rows[-1])
    return rows


def norm(samples: int) -> list[Row]:
    """Bytes are x, y, cos and sin once."""
    import torch

    import whet
    from whet.kernels import norm_rope, norm_rope_triton, rmsnorm_rope

    compiled = torch.compile(norm_rope.reference, dynamic=False)
    rows: list[Row] = []
    for tokens in TOKENS:
        x, weight = random_tensor(tokens, HIDDEN), random_tensor(HIDDEN)
        angles = torch.rand(tokens, HEAD // 2, device="cuda")
        cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
        plain = (x, weight, cos, sin, 1e-6, HEAD, None, False)
        calls: dict[str, Call] = {
            "compiled": partial(compiled, *plain),
            "triton": partial(norm_rope.fused, *plain),
            "choice": partial(rmsnorm_rope, x, weight, cos, sin, head_dim=HEAD),
        }
        with whet.cost("graph"):
            right = calls["choice"]()
        torch.testing.assert_close(right, calls["compiled"](), rtol=0.05, atol=0.05)
        times = timed(calls, samples)
        size = 2 * (2 * tokens * HIDDEN + 2 * tokens * HEAD // 2)
        us = means(times)
        value, low, high = ratio(times["compiled"], times["choice"])
        wanted = (3.6, 1.3) if tokens >= 8192 else (0.0, 1.0)
        speed = size / us["choice"] / 1e6
        rows.append(
            {
                "tokens": tokens,
                "us": us,
                "TB/s": round(speed, 3),
                "compiled_over_choice": [round(one, 4) for one in (value, low, high)],
                "config": str(norm_rope_triton.rmsnorm_rope_kernel.best_config),
                "ok": speed >= wanted[0] and value >= wanted[1],
            }
        )
        say(rows[-1])
    return rows


def mlp(samples: int) -> list[Row]:
    """Gate and up alone; the better torch form is two products, or one of stacked weights."""
    import torch

    import whet
    from whet.kernels import gated_mlp, mlp_triton
    from whet.kernels import mlp as module

    rows: list[Row] = []
    for n, k in WEIGHTS:
        both = random_tensor(2 * n, k)
        gate, up = both[:n], both[n:]
        for m in ROWS:
            x = random_tensor(m, k)
            rest = (x, gate, up, "silu")
            calls: dict[str, Call] = {
                "two": partial(module.reference, *rest),
                "one": partial(module.one_product, x, both, "silu"),
                "cublas+kernel": partial(module.product_then_kernel, x, both, "silu"),
                "triton": partial(module.by_triton, *rest),
                "choice": partial(gated_mlp, x, both),
            }
            with whet.cost("graph"):
                right = calls["choice"]()
            torch.testing.assert_close(right, calls["two"](), rtol=0.05, atol=0.05)
            times = timed(calls, samples)
            best = min(("two", "one"), key=lambda name: trimmed_mean(times[name]))
            rows.append(
                {
                    "n": n,
                    "k": k,
                    "m": m,
                    "pick": list(module.stacked.picks.values())[-1],
                    "us": means(times),
                    "torch": best,
                    "torch_over_choice": round(ratio(times[best], times["choice"])[0], 4),
                    "torch_over_triton": round(ratio(times[best], times["triton"])[0], 4),
                    "config": str(mlp_triton.gated_kernel.best_config),
                }
            )
            say(rows[-1])
    return [*rows, *_summed(rows)]


def _summed(rows: Sequence[Row]) -> list[Row]:
    def mean(name: str, few: bool) -> float:
        chosen = [row[name] for row in rows if (row["m"] <= 64) == few]
        return math.exp(statistics.fmean(map(math.log, chosen)))

    few, many = mean("torch_over_choice", True), mean("torch_over_choice", False)
    alone = mean("torch_over_triton", False)
    summary: list[Row] = [
        {"geometric mean": "choice, M <= 64", "x": round(few, 4), "ok": few >= 1.10},
        {"geometric mean": "choice, M >= 512", "x": round(many, 4), "ok": many >= 0.97},
        {"geometric mean": "triton alone, M >= 512", "x": round(alone, 4), "ok": alone >= 0.88},
    ]
    for row in summary:
        say(row)
    return summary


def dispatch(samples: int, calls: int = 2000) -> list[Row]:
    """A tuned choice above its winner, plain eager calls on matrices that take no time."""
    import torch

    from whet.kernels import product

    a, b = random_tensor(16, 64), random_tensor(64, 64)
    product.chosen(a, b)
    pick = list(product.chosen.picks.values())[-1]
    winner = product.chosen.implementations[pick]
    best = {"choice": math.inf, "winner": math.inf}
    for turn in range(max(10, samples)):
        order = (product.chosen, winner) if turn % 2 else (winner, product.chosen)
        for call in order:
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(calls):
                call(a, b)
            took = 1e6 * (time.perf_counter() - began) / calls
            name = "winner" if call is winner else "choice"
            best[name] = min(best[name], took)
    extra = best["choice"] - best["winner"]
    row: Row = {
        "pick": pick,
        "us": {name: round(us, 3) for name, us in best.items()},
        "extra_us": round(extra, 3),
        "ok": extra <= 2.0,
    }
    say(row)
    return [row]


def host(samples: int, calls: int = 20) -> list[Row]:
    """Microseconds until a call of a known kind returns; the shortest turn of each counts."""
    import torch

    rows: list[Row] = []
    for name in ("rmsnorm_rope", "attention", "fp8_gemm", "gated_mlp", "gemm"):
        for m in FEW_ROWS:
            ours, torchs, pick = _pair(name, m)
            for call in (ours, torchs) * 3:
                call()
            best = {"whet": math.inf, "torch": math.inf}
            for _ in range(samples):
                for who, call in (("whet", ours), ("torch", torchs)):
                    torch.cuda.synchronize()
                    began = time.perf_counter()
                    for _ in range(calls):
                        call()
                    best[who] = min(best[who], 1e6 * (time.perf_counter() - began) / calls)
            extra, won = best["whet"] - best["torch"], pick()
            row: Row = {"kernel": name, "m": m, "pick": won}
            row |= {f"{who}_us": round(us, 1) for who, us in best.items()}
            rows.append(row | {"ok": extra <= (3.0 if "triton" in won else 2.0)})
            say(rows[-1])
    return rows


def _pair(name: str, m: int) -> tuple[Call, Call, Callable[[], str]]:
    """A call of ours, one of torch's own, and what ours has chosen."""
    import torch

    from whet import kernels
    from whet.kernels import fp8, norm_rope, product, sdpa
    from whet.kernels import mlp as mlps

    def pick(chosen: Any) -> Callable[[], str]:
        return lambda: str(list(chosen.picks.values())[-1])

    x = random_tensor(m, HIDDEN)
    if name == "gemm":
        w = random_tensor(HIDDEN, HIDDEN)
        return partial(kernels.gemm, x, w), partial(torch.matmul, x, w), pick(product.chosen)
    if name == "gated_mlp":
        both = random_tensor(2 * HIDDEN, HIDDEN)
        gate, up = both[:HIDDEN], both[HIDDEN:]
        two = partial(mlps.reference, x, gate, up, "silu")
        return partial(kernels.gated_mlp, x, both), two, pick(mlps.stacked)
    if name == "attention":
        q, k, v = (random_tensor(1, heads, m, HEAD) for heads in (32, 8, 8))
        sdpa_of = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
        plain = partial(sdpa_of, q, k, v, enable_gqa=True)
        return partial(kernels.attention, q, k, v, causal=True), plain, pick(sdpa.chosen)
    if name == "fp8_gemm":
        a, one = kernels.quantize_fp8(x)
        b, other = kernels.quantize_fp8(random_tensor(HIDDEN, HIDDEN))
        scales = {"scale_a": one.reshape(()), "scale_b": other.reshape(())}
        plain = partial(
            torch._scaled_mm, a, b.t(), out_dtype=torch.bfloat16, use_fast_accum=True, **scales
        )
        return partial(kernels.fp8_gemm, a, b.t(), one, other), plain, pick(fp8.chosen)
    weight = random_tensor(HIDDEN)
    angles = torch.rand(m, HEAD // 2, device="cuda")
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    torch._dynamo.reset()  # which compiles one function for so many shapes only
    compiled = torch.compile(norm_rope.reference, dynamic=False)
    return (
        partial(kernels.rmsnorm_rope, x, weight, cos, sin, head_dim=HEAD),
        partial(compiled, x, weight, cos, sin, 1e-6, HEAD, None, False),
        pick(norm_rope.chosen),
    )


def layer(samples: int) -> list[Row]:
    """A public gated MLP as it is, and with its forward replaced: right results, and the times."""
    import torch

    import whet
    from whet.kernels import gated_mlp

    made, where = _public_mlp()
    rows: list[Row] = []
    for m in ROWS:
        x = random_tensor(1, m, 4096)

        weights = (made.gate_proj.weight, made.up_proj.weight, made.down_proj.weight)
        replaced = partial(gated_mlp, x, *weights)
        with torch.no_grad():
            with whet.cost("graph"):
                replaced()
            torch.testing.assert_close(replaced(), made(x), rtol=0.05, atol=0.05)
            times = timed({"as it is": partial(made, x), "replaced": replaced}, samples)
        value, low, high = ratio(times["as it is"], times["replaced"])
        rows.append(
            {
                "layer": where,
                "m": m,
                "us": means(times),
                "as_it_is_over_replaced": [round(one, 4) for one in (value, low, high)],
                "ok": high >= 0.99,
            }
        )
        say(rows[-1])
    return rows


def _public_mlp() -> tuple[Any, str]:
    import torch

    hidden, inner = 4096, 14336
    try:
        from fla.modules.mlp import GatedMLP

        made, where = GatedMLP(hidden, intermediate_size=inner), "fla.modules.mlp.GatedMLP"
    except ImportError:
        try:
            from transformers.models.llama.configuration_llama import LlamaConfig
            from transformers.models.llama.modeling_llama import LlamaMLP
        except ImportError as error:
            raise SystemExit(f"no library with a gated MLP ({error}); give --library") from None
        config = LlamaConfig(hidden_size=hidden, intermediate_size=inner)
        made, where = LlamaMLP(config), "transformers LlamaMLP"
    return made.to("cuda", torch.bfloat16).requires_grad_(False), where


def say(row: Mapping[str, Any]) -> None:
    print(json.dumps(row, ensure_ascii=False), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--store", help="keep results there (default: a new store)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"unknown part '{unknown[0]}'; there are {', '.join(PARTS)}")
    if options.library is not None:
        sys.path.insert(0, str(options.library))
    parts = options.parts or list(PARTS[:-1])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WHET_STORE"] = options.store or str(Path(folder, "store.db"))
        found: dict[str, Any] = {}
        for part in parts:
            began = time.perf_counter()
            found[part] = globals()[part](options.samples)
            wrong = [row for row in found[part] if not row.get("ok", True)]
            took = time.perf_counter() - began
            print(f"{part}: {len(wrong)} of {len(found[part])} missed, {took:.0f} s", flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
