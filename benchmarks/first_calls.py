"""Callables whose first call compiles: is the fastest one chosen, run after run?

    python benchmarks/first_calls.py [--runs 10] [--cases lazy,numba,pointwise,mlp] [--json]

Each run is a process of its own with an empty store. Afterwards, in the same process, all ways
are called in turns, 61 times, and timed by the clock alone. A pick is right if nothing failed and
no other way was more than 5 % faster in the median of these turns. The cases: `lazy` sleeps, for
7 s at its first call; `numba` compiles a loop; `pointwise` and `mlp` are torch.compile's modes on
a chain of pointwise operations and on a small MLP. What is not installed is left out. Inductor's
cache is empty at the first run of a case and warm at the others.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import whet

NEEDS = {"lazy": "", "numba": "numba", "pointwise": "torch", "mlp": "torch"}
WITHIN = 1.05
TORCH_MODES = ("eager", "default", "reduce-overhead", "max-autotune")


def lazy() -> dict[str, Callable[[], Any]]:
    ready: set[str] = set()

    def way(name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            if name not in ready and name != "plain":
                time.sleep(7.0)
            ready.add(name)
            time.sleep(seconds)

        return call

    return {
        "plain": way("plain", 0.003),
        "slow": way("slow", 0.005),
        "fast": way("fast", 0.001),
    }


def numba() -> dict[str, Callable[[], Any]]:
    import numba as nb  # type: ignore[import-not-found,import-untyped,unused-ignore]

    x = np.random.default_rng(0).random(300_000)

    def looped(values: np.ndarray) -> float:
        total = 0.0
        for value in values:
            total += np.sqrt(value * value + 1.0)
        return total

    quick, exact = nb.njit(fastmath=True)(looped), nb.njit(looped)
    return {
        "numpy": lambda: float(np.sqrt(x * x + 1.0).sum()),
        "njit": lambda: exact(x),
        "fastmath": lambda: quick(x),
    }


def pointwise() -> dict[str, Callable[[], Any]]:
    import torch

    torch.set_num_threads(1)
    x = torch.randn(1_000_000)

    def chain(values: Any) -> Any:
        return torch.tanh(values * 0.5 + 1.0).square().add(3.0).sqrt().mul(values).sub(values.abs())

    return _modes(chain, x)


def mlp() -> dict[str, Callable[[], Any]]:
    import torch

    torch.set_num_threads(1)
    layers = torch.nn.Sequential(
        torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)
    )
    return _modes(layers, torch.randn(256, 1024))


def _modes(model: Any, x: Any) -> dict[str, Callable[[], Any]]:
    import torch

    compiled: dict[str, Any] = {"eager": model}

    def way(mode: str) -> Callable[[], Any]:
        def call() -> Any:
            if mode not in compiled:
                compiled[mode] = torch.compile(model, mode=mode)
            with torch.no_grad():
                return compiled[mode](x)

        return call

    return {mode: way(mode) for mode in TORCH_MODES}


CASES: dict[str, Callable[[], dict[str, Callable[[], Any]]]] = {
    "lazy": lazy,
    "numba": numba,
    "pointwise": pointwise,
    "mlp": mlp,
}


def one_run(case: str) -> dict[str, Any]:
    ways = CASES[case]()

    def call(way: str) -> None:
        ways[way]()

    target = whet.function(call, {"way": list(ways)}, key={}, name=case)
    result = whet.tune(target, store=":memory:")
    turns = _in_turns(ways)
    pick = str(result.config["way"])
    return {
        "pick": pick,
        "ratio": max(statistics.median(turn[pick] / turn[way] for turn in turns) for way in ways),
        "failed": [str(trial.config["way"]) for trial in result.trials if trial.status.failed],
        "first_calls_s": result.run.cost.wall["first_call"],
        "wall_s": result.run.wall_s,
        "ms": {way: 1000 * statistics.median(turn[way] for turn in turns) for way in ways},
    }


def _in_turns(ways: dict[str, Callable[[], Any]], rounds: int = 61) -> list[dict[str, float]]:
    """Seconds of each way, turn by turn, in changing order; three more turns warm up."""
    turns = []
    for turn in range(-3, rounds):
        seconds = {}
        for way in list(ways) if turn % 2 else reversed(list(ways)):
            began = time.perf_counter()
            ways[way]()
            seconds[way] = time.perf_counter() - began
        if turn >= 0:
            turns.append(seconds)
    return turns


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one_run(asked.one)))
        return 0
    rows = {}
    for case in asked.cases.split(","):
        if NEEDS[case] and importlib.util.find_spec(NEEDS[case]) is None:
            print(f"{case}: left out, since {NEEDS[case]} is not installed", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            environ = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
            runs = [_in_a_process(case, environ) for _ in range(asked.runs)]
        rows[case] = runs
    if asked.json:
        print(json.dumps(rows))
    else:
        _show(rows)
    return 0 if all(_right(run) for runs in rows.values() for run in runs) else 1


def _in_a_process(case: str, environ: dict[str, str]) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, __file__, "--one", case], env=environ, stdout=subprocess.PIPE, check=True
    )
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _right(run: dict[str, Any]) -> bool:
    return run["ratio"] <= WITHIN and not run["failed"]


def _show(rows: dict[str, list[dict[str, Any]]]) -> None:
    print(
        f"{'case':<11}{'right':>9}{'failed':>8}{'worst':>8}{'first calls':>13}{'in all':>8}  picks"
    )
    for case, runs in rows.items():
        picks = ", ".join(sorted({run["pick"] for run in runs}))
        right = f"{sum(map(_right, runs))} of {len(runs)}"
        failed = sum(len(run["failed"]) for run in runs)
        print(
            f"{case:<11}{right:>9}{failed:>8}{max(run['ratio'] for run in runs):>7.2f}×"
            f"{statistics.median(run['first_calls_s'] for run in runs):>11.1f} s"
            f"{statistics.median(run['wall_s'] for run in runs):>6.1f} s  {picks}"
        )


if __name__ == "__main__":
    sys.exit(main())
