"""What the engine itself costs: a kernel that does nothing, 1,000 configs, a store on disk.

    python benchmarks/engine_overhead.py [--json]

Overhead is the wall time that neither the kernel's samples nor its warm-up and check account for:
asking, messages between processes, the race, and writing every trial to the store.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import whet

TRIALS = 1000


def nothing(a: int) -> None:
    return None


def run(isolate: bool) -> dict[str, float]:
    target = whet.function(nothing, {"a": list(range(TRIALS))}, isolate=isolate, key={})
    tune = whet.tune  # imported here, not in what is measured
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        result = tune(target, store=Path(folder) / "store.db")
        wall = time.perf_counter() - start
    cost = result.run.cost.wall
    overhead = wall - cost["measure"] - cost["first_call"] - cost["check"]
    return {
        "trials": len(result.trials),
        "wall_s": wall,
        "ledger_s": sum(cost.values()),
        "ledger_over_wall": sum(cost.values()) / wall,
        "overhead_ms_per_trial": 1000 * overhead / len(result.trials),
    }


def middle(isolate: bool) -> dict[str, float]:
    """The middle one of five runs, and the overhead of all."""
    runs = sorted((run(isolate) for _ in range(5)), key=lambda row: row["overhead_ms_per_trial"])
    low, high = runs[0]["overhead_ms_per_trial"], runs[-1]["overhead_ms_per_trial"]
    return {**runs[2], "lowest_ms": low, "highest_ms": high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = {"in a worker": middle(isolate=True), "in process": middle(isolate=False)}
    if asked.json:
        print(json.dumps(rows))
        return
    print(f"{'':14}{'trials':>8}{'wall':>9}{'ledger/wall':>13}{'overhead/trial':>16}  of 5 runs")
    for name, row in rows.items():
        print(
            f"{name:14}{row['trials']:8}{row['wall_s']:8.2f}s{row['ledger_over_wall']:13.4f}"
            f"{row['overhead_ms_per_trial']:13.3f} ms  "
            f"{row['lowest_ms']:.2f} to {row['highest_ms']:.2f}"
        )


if __name__ == "__main__":
    main()
