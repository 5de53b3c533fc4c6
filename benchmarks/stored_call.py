"""What the first call of a new process costs when the store has the answer.

    python benchmarks/stored_call.py [--rounds 5] [--json]

One process tunes. Then, in turns, fresh processes make their first call: with whet, which finds
everything in the store, and with the bare kernel at the same config. Both load the same binary from
Triton's cache, so the difference is whet's own work. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def child(side: str) -> None:
    import torch

    import triton_kernels as kernels
    import whet

    kernels.wake_device()
    a, b, c = kernels.matmul_inputs(1024)
    arguments, grid = kernels.matmul_arguments(a, b, c), kernels.matmul_grid(1024, 1024)
    configs = kernels.tutorial_configs()
    tuned = whet.autotune(configs=configs, key=kernels.KEY)(kernels.matmul_kernel)
    chosen = json.loads(os.environ.get("CHOSEN", "{}"))
    torch.cuda.synchronize()
    start = time.perf_counter()
    if side == "bare":
        kernels.matmul_kernel[grid](*arguments, **chosen)
    else:
        tuned[grid](*arguments)
    spent = time.perf_counter() - start
    torch.cuda.synchronize()
    pick = tuned.best_config.all_kwargs() if side == "whet" else chosen
    print(json.dumps({"ms": 1000 * spent, "pick": pick}))


def first_call(side: str, environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--child", side],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        base = {
            **os.environ,
            "TRITON_CACHE_DIR": str(Path(folder) / "triton"),
            "WHET_STORE": str(Path(folder) / "store.db"),
        }
        cold = first_call("whet", base)
        base["CHOSEN"] = json.dumps(cold["pick"])
        first_call("bare", base)
        times: dict[str, list[float]] = {"whet": [], "bare": []}
        for _ in range(asked.rounds):
            for side in times:
                times[side].append(first_call(side, base)["ms"])
    medians = {side: statistics.median(values) for side, values in times.items()}
    row = {"cold_ms": cold["ms"], **times, "ours_ms": medians["whet"] - medians["bare"]}
    if asked.json:
        print(json.dumps(row))
        return
    print(f"cold, tuning      {cold['ms']:8.1f} ms")
    print(f"stored, with whet {medians['whet']:8.1f} ms")
    print(f"the bare kernel   {medians['bare']:8.1f} ms")
    print(f"whet's own work   {row['ours_ms']:8.1f} ms  (median of {asked.rounds})")


if __name__ == "__main__":
    main()
