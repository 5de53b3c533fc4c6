"""What isolation costs where nothing goes wrong: the tutorial's 16 configs, everything cold.

    python benchmarks/isolation_cost.py [--size 4096] [--rounds 5] [--json FILE]

Each tuning runs in a process of its own with empty folders for Triton's, CUDA's and whet's results,
with and without `isolate=True` in turns. `first call` is from the call of the kernel to its result,
the start of the measuring process included; `process` is from the start of Python to its end.
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

from cold import Record, byte_compile, empty_caches

CHILD_LIMIT_S = 300
WANTED = 1.30
FIGURES = {"first_call_s": "first call", "process_s": "process"}


def tune_cold(isolate: bool, size: int) -> dict[str, Any]:
    """Runs in a process that has never tuned anything."""
    import torch

    import whet
    from triton_kernels import (
        KEY,
        matmul_arguments,
        matmul_grid,
        matmul_inputs,
        matmul_kernel,
        relative_error,
        tutorial_configs,
        wake_device,
    )

    tune = whet.autotune(configs=tutorial_configs(), key=list(KEY), isolate=isolate)
    kernel = tune(matmul_kernel)
    wake_device()
    benches = watch_benches()
    a, b, c = matmul_inputs(size)
    torch.cuda.synchronize()
    start = time.perf_counter()
    kernel[matmul_grid(size, size)](*matmul_arguments(a, b, c))
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    result = kernel.whet_result
    assert result is not None
    return {
        "first_call_s": seconds,
        "pick": kernel.best_config.all_kwargs(),
        "relative_error": relative_error(a, b, c),
        "wall": {name: float(s) for name, s in result.run.cost.wall.items()},
        "device": torch.cuda.get_device_name(),
        "benches": benches,
    }


def watch_benches() -> list[dict[str, Any]]:
    """What every isolated bench says when it is closed: which process it had, and what took the
    time in which that was made ready."""
    from whet.targets.triton.isolated.bench import IsolatedBench

    seen: list[dict[str, Any]] = []
    close = IsolatedBench.close

    def noted(self: IsolatedBench) -> None:
        seen.append({"plain": self.plain, "set_up": dict(self.set_up)})
        close(self)

    IsolatedBench.close = noted  # type: ignore[method-assign]
    return seen


def in_new_process(isolate: bool, size: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, __file__, "--side", "yes" if isolate else "no", "--size", str(size)],
            env={**os.environ, **empty_caches(Path(folder))},
            stdout=subprocess.PIPE,
            text=True,
            timeout=CHILD_LIMIT_S,
        )
        seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"a tuning ended with exit code {done.returncode}")
    return {**json.loads(done.stdout.splitlines()[-1]), "process_s": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--verbose", action="store_true", help="also where starting up went")
    parser.add_argument("--side", choices=("yes", "no"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side:
        print(json.dumps(tune_cold(asked.side == "yes", asked.size)))
        return
    byte_compile()
    record = Record(asked.json)
    rows: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for number in range(asked.rounds):
        for isolate in (False, True) if number % 2 else (True, False):
            row = in_new_process(isolate, asked.size)
            rows[isolate].append(row)
            record.put(f"{number} {'isolated' if isolate else 'in process'}", row)
            print(
                f"round {number} {'isolated  ' if isolate else 'in process'} "
                f"first call {row['first_call_s']:6.2f} s, process {row['process_s']:6.2f} s",
                flush=True,
            )
            for bench in row["benches"] if asked.verbose else ():
                spent = ", ".join(f"{name} {1e3 * s:.0f}" for name, s in bench["set_up"].items())
                kind = "without" if bench["plain"] else "with"
                print(f"        a process {kind} torch; ms: {spent}", flush=True)
            if asked.verbose:
                spent = ", ".join(f"{name} {1e3 * s:.0f}" for name, s in row["wall"].items())
                print(f"        the tuner; ms: {spent}", flush=True)
    print(f"\n{rows[False][0]['device']}, medians of {asked.rounds}")
    for key, name in FIGURES.items():
        here, apart = (statistics.median(row[key] for row in rows[side]) for side in (False, True))
        ratio = apart / here
        print(
            f"{name:12}{here:6.2f} s in process, {apart:6.2f} s isolated: {ratio:.2f}× "
            f"(≤ {WANTED:.2f}× wanted)"
        )
        record.put(name, {"in_process_s": here, "isolated_s": apart, "ratio": ratio})


if __name__ == "__main__":
    main()
