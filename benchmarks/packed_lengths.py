"""Packed sequences of changing lengths through flash-linear-attention, with and without a policy.

    python benchmarks/packed_lengths.py FOLDER [--packings 50] [--ways every,buckets]
        [--limit 500] [--json OUT]

FOLDER has `fla/` of the public repository in it, and einops where that is not installed. The step
is a short convolution, `chunk_gla` and a gated norm, forward and backward, on random packings; the
number of tokens changes from one to the next. Each way has a process, a store and a Triton cache of
its own:

    every     each key is tuned
    buckets   a policy file puts `NB`, the blocks of tokens in a key, into buckets

The table has how many keys each way has tuned, those of the kernel with the most, what the first
pass took, and the time of the steps once everything is tuned: all kernels of a step by torch's
profiler, and the step itself by events. Below are the geometric means over the packings, buckets
over every key. `--limit` is in seconds: where it is not enough for all packings, both ways get as
many as the first could do in time. What OUT has already is not measured again, so that each way
may be a command of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

POLICY = '[[kernel]]\nmatch = "fla.*:*"\nbuckets = { NB = "pow2" }\n'
HEADS, WIDTH = 8, 128
ROUNDS, STEPS = 3, 5
# What the first pass may take of a way's time; the rest is for the steps once all is tuned.
FIRST_PASS = 0.7
WAYS = ("every", "buckets")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--packings", type=int, default=50)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--limit", type=float, default=500.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--ends", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.way:
        print(json.dumps(run(asked.folder, asked.packings, asked.ends)))
        return 0
    start = time.monotonic()
    found: dict[str, Any] = {}
    if asked.json and asked.json.exists():
        found = json.loads(asked.json.read_text())
    count = min((told["packings"] for told in found.values()), default=asked.packings)
    todo = [way for way in asked.ways.split(",") if way not in found]
    for way in todo:
        left = asked.limit - (time.monotonic() - start)
        share = 1.0 if way == todo[-1] else 0.65
        found[way] = in_a_process(asked, way, count, share * left)
        count = found[way]["packings"]
        if asked.json:
            asked.json.write_text(json.dumps(found, indent=1))
    if all(way in found for way in WAYS):
        print_table({way: found[way] for way in WAYS}, asked.packings)
    return 0


def in_a_process(asked: argparse.Namespace, way: str, count: int, limit: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder, "whet.toml")
        policy.write_text(POLICY)
        environment = {
            **os.environ,
            "WHET_STORE": f"{folder}/store.db",
            "WHET_POLICY": str(policy) if way == "buckets" else "none",
            "TRITON_CACHE_DIR": f"{folder}/triton",
        }
        command = [sys.executable, __file__, str(asked.folder), "--way", way]
        command += ["--packings", str(count), "--ends", f"{FIRST_PASS * limit:.0f}"]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, check=True, timeout=limit + 120
        )
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def print_table(found: dict[str, Any], wanted: int) -> None:
    packings = min(told["packings"] for told in found.values())
    timed = min(len(told["step_ms"]) for told in found.values())
    print(f"{packings} packings" + (f" of {wanted}, by --limit" if packings < wanted else ""))
    if timed < packings:
        print(f"timed are the steps of {timed} of them, by --limit")
    print("way       tuned  of kernels  most of one  first pass  kernels of a step     step")
    for way, told in found.items():
        kernels, steps = (
            statistics.median(told[name][:timed]) for name in ("kernel_us", "step_ms")
        )
        most = max(told["keys"].values(), default=0)
        print(
            f"{way:8} {told['tuned']:6} {told['kernels']:11} {most:12} {told['first_s']:9.1f} s "
            f"{kernels:15.0f} µs {steps:5.2f} ms"
        )
    for kernel in found["every"]["keys"]:
        counts = [found[way]["keys"].get(kernel, 0) for way in WAYS]
        if max(counts) > 1:
            print(f"  {kernel}: {counts[0]} keys, {counts[1]} with buckets")
    for name in ("kernel_us", "step_ms"):
        pairs = zip(*(found[way][name][:timed] for way in WAYS), strict=True)
        ratios = [two / one for one, two in pairs if one and two]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            what = "kernels" if name == "kernel_us" else "steps"
            print(f"{what} take {mean:.4f} times as long with buckets ({max(ratios):.3f} at most)")


def packings(torch: Any, count: int) -> list[Any]:
    """Ends of sequences; 2,000 to 33,000 tokens each."""
    made = []
    for seed in range(count):
        draw = torch.Generator().manual_seed(seed)
        number = int(torch.randint(2, 17, (1,), generator=draw))
        lengths = torch.randint(64, 2049, (number,), generator=draw) + 937
        made.append(torch.cat([torch.zeros(1), lengths.cumsum(0)]).long().cuda())
    return made


def made_step(torch: Any, ends: Any) -> Any:
    from fla.modules.conv.causal_conv1d import causal_conv1d
    from fla.modules.fused_norm_gate import rms_norm_gated
    from fla.ops.gla import chunk_gla

    tokens, width = int(ends[-1]), HEADS * WIDTH
    torch.manual_seed(0)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    x, gate, weight = normal(1, tokens, width), normal(1, tokens, width), normal(width, 4)
    k, v, g = (normal(1, tokens, HEADS, WIDTH) for _ in range(3))
    scale = normal(WIDTH)

    def step() -> None:
        q, _ = causal_conv1d(x, weight, activation="silu", cu_seqlens=ends)
        decay = torch.nn.functional.logsigmoid(g)
        o, _ = chunk_gla(q.view(1, tokens, HEADS, WIDTH), k, v, decay, cu_seqlens=ends)
        out = rms_norm_gated(o, gate.view_as(o), scale, None)
        out.float().square().mean().backward()

    return step


def run(folder: Path, count: int, ends: float) -> dict[str, Any]:
    """Packing by packing, as many as begin before `ends`, and at least two."""
    sys.path.insert(0, str(folder.resolve()))
    import torch

    import whet
    from libraries import kernel_us

    whet.install()
    start = time.perf_counter()
    done: list[Any] = []
    for ends_of in packings(torch, count):
        if time.perf_counter() - start > ends and len(done) >= 2:
            break
        made_step(torch, ends_of)()
        done.append(ends_of)
    torch.cuda.synchronize()
    first_s = time.perf_counter() - start
    keys: dict[str, int] = {}
    with whet.open_store(os.environ["WHET_STORE"]) as store:
        for known in store.workloads():
            if any(one.trials for one in store.runs(known.workload.id)):
                keys[known.workload.kernel] = keys.get(known.workload.kernel, 0) + 1
    step_ms: list[float] = []
    kernels_us: list[float] = []
    for ends_of in done:
        if time.perf_counter() - start > ends / FIRST_PASS and len(step_ms) >= 2:
            break
        step = made_step(torch, ends_of)
        step_ms.append(steady_ms(torch, step))
        kernels_us.append(kernel_us(torch, step))
    return {
        "packings": len(done),
        "tuned": sum(keys.values()),
        "kernels": len(keys),
        "keys": dict(sorted(keys.items(), key=lambda item: -item[1])),
        "first_s": first_s,
        "step_ms": step_ms,
        "kernel_us": kernels_us,
    }


def steady_ms(torch: Any, step: Any) -> float:
    """The shortest of a few rounds: a step is long, and others only ever make it longer."""
    step()
    times: list[float] = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(STEPS):
            step()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / STEPS)
    return min(times)


if __name__ == "__main__":
    raise SystemExit(main())
