"""Packed sequences of changing lengths through flash-linear-attention, with and without a policy.

    python benchmarks/packed_lengths.py FOLDER [--packings 50] [--json OUT]

FOLDER has `fla/` of the public repository in it, and einops where that is not installed. The step
is a short convolution, `chunk_gla` and a gated norm, forward and backward, on random packings; the
number of tokens changes from one to the next. Each way has a process, a store and a Triton cache of
its own:

    every     each key is tuned
    buckets   a policy file puts `NB`, the blocks of tokens in a key, into buckets

It prints how many keys of how many kernels each way has tuned, what that took, and the time of the
steps once everything is tuned, as the geometric mean of their ratios.
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

POLICY = '[[kernel]]\nmatch = "fla.*:*"\nbuckets = { NB = "pow2" }\n'
HEADS, WIDTH = 8, 128
ROUNDS, STEPS = 3, 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--packings", type=int, default=50)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.way:
        print(json.dumps(run(asked.folder, asked.packings)))
        return 0
    found = {way: in_a_process(asked, way) for way in ("every", "buckets")}
    for way, told in found.items():
        print(
            f"{way:8} {told['tuned']:4} keys of {told['kernels']} kernels tuned, "
            f"first pass {told['first_s']:.1f} s"
        )
        for kernel, keys in told["keys"].items():
            print(f"         {keys:4} {kernel}")
    ratios = [
        two / one
        for one, two in zip(found["every"]["step_ms"], found["buckets"]["step_ms"], strict=True)
    ]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"steady steps with buckets take {mean:.4f} times as long ({max(ratios):.3f} at most)")
    if asked.json:
        asked.json.write_text(json.dumps(found))
    return 0


def in_a_process(asked: argparse.Namespace, way: str) -> dict[str, Any]:
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
        command += ["--packings", str(asked.packings)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


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


def run(folder: Path, count: int) -> dict[str, Any]:
    sys.path.insert(0, str(folder.resolve()))
    import torch

    import whet

    whet.install()
    start = time.perf_counter()
    for ends in packings(torch, count):
        made_step(torch, ends)()
    torch.cuda.synchronize()
    first_s = time.perf_counter() - start
    keys: dict[str, int] = {}
    with whet.open_store(os.environ["WHET_STORE"]) as store:
        for known in store.workloads():
            if any(one.trials for one in store.runs(known.workload.id)):
                keys[known.workload.kernel] = keys.get(known.workload.kernel, 0) + 1
    step_ms = [steady_ms(torch, made_step(torch, ends)) for ends in packings(torch, count)]
    return {
        "tuned": sum(keys.values()),
        "kernels": len(keys),
        "keys": dict(sorted(keys.items(), key=lambda item: -item[1])),
        "first_s": first_s,
        "step_ms": step_ms,
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
