"""Two kernels that are no plain matrix product: a row softmax and a fused attention forward.

    python benchmarks/kernels_cost.py [--kernels softmax,attention] [--no-stock] [--no-referee]
                                      [--json FILE]

Each has a space of more than 60 configs and 8 sizes. Whet tunes all sizes cold in one process,
stock compiles every config and benchmarks it at every size in others, under a time budget: what it
was not given the time for is worked out and marked. The referee times every config at every size,
30 samples each, and says how near both sides' picks come to the best.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cold import Record, byte_compile
from contest import (
    Judging,
    Patience,
    compile_order,
    judged_elsewhere,
    kinds_of,
    picks_of,
    racing_share,
    side,
    stock_compiles,
    stock_total,
)
from problems import Problem, problem, size_text

WHET_LIMIT_S = 90.0
WANTED_RATIO, WANTED_MEAN = 10.0, 0.99


def stock_side(asked: Problem, kinds: dict[int, str], options: argparse.Namespace) -> Any:
    patience = Patience(options.compile_limit, options.compile_budget, options.bench_budget)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        order = compile_order(kinds, len(asked.configs))
        compiles = stock_compiles(asked, order, Path(name), patience)
        good = sorted(i for i, row in compiles.items() if row["finished"] and not row["problem"])
        payload = {"configs": good, "seconds": patience.benches_s}
        benches = side("stock-bench", asked, payload, Path(name), patience.benches_s + 60)
    rows = benches.get("sizes", [])
    return {
        "compiles": compiles,
        "benches": rows,
        **stock_total(kinds, compiles, rows, len(asked.sizes)),
    }


def one_kernel(name: str, options: argparse.Namespace, record: Record) -> None:
    asked = problem(name)
    row: dict[str, Any] = {}

    def keep(part: str, found: Any) -> None:
        row[part] = found
        record.put(name, row)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tuned = side("whet", asked, {}, Path(folder), WHET_LIMIT_S)
        keep("whet", tuned)
        kinds = kinds_of(asked, tuned)
        keep("kinds", {kind: list(kinds.values()).count(kind) for kind in set(kinds.values())})
        picks = {"whet": picks_of(tuned)}
        if not options.no_stock:
            keep("stock", stock_side(asked, kinds, options))
            picks["stock"] = picks_of({"sizes": row["stock"]["benches"]})
        if not options.no_referee:
            limits = Judging(options.compile_limit, options.judge_limit, options.samples)
            keep("referee", judged_elsewhere(asked, kinds, picks, Path(folder), limits))
            keep("racing", racing_share(tuned, row["referee"]["sizes"]))


def print_kernel(name: str, row: Mapping[str, Any]) -> bool:
    tuned, asked = row["whet"], problem(name)
    whet_s = tuned.get("wall_s")
    print(f"\n{name}: {len(asked.configs)} configs × {len(asked.sizes)} sizes, {row['kinds']}")
    if whet_s is None or tuned["exit_code"] != 0:
        print(f"  whet: DID NOT FINISH (exit code {tuned['exit_code']}), {whet_s} s so far")
        return False
    good = bool(tuned["right"])
    right = "right" if tuned["right"] else "WRONG"
    print(f"  whet: {whet_s:.2f} s (first size {tuned['calls'][0]['s']:.2f} s); results {right}")
    if "stock" in row:
        stock = row["stock"]
        ratio = stock["extrapolated_s"] / whet_s
        mark = " (extrapolated)" if stock["extrapolated"] else ""
        print(
            f"  stock: {stock['extrapolated_s']:.1f} s{mark}, {ratio:.1f}× whet: "
            f"{stock['compiles_measured']} compiles {stock['compiles_measured_s']:.1f} s, "
            f"{stock['benches_measured']} benchmarks {stock['benches_measured_s']:.1f} s"
        )
        good &= ratio >= WANTED_RATIO
    if "referee" in row:
        good &= _print_quality(asked, row)
    return good


def _print_quality(asked: Problem, row: Mapping[str, Any]) -> bool:
    judged = row["referee"]
    for side_name, found in judged["quality"].items():
        if found is None:
            continue
        print(
            f"  {side_name:5} geometric mean {100 * found['geometric_mean']:.2f} % of the best of "
            f"{judged['usable']}, worst {100 * found['worst']:.1f} % at "
            f"{size_text(asked.sizes[found['worst_size']])}; net of the events "
            f"{100 * found['net_geometric_mean']:.2f} %; rematch "
            f"{100 * found['rematch_geometric_mean']:.2f} %   ({found['sizes']} sizes)"
        )
    if row.get("racing"):
        print(f"  kernel time: {100 * row['racing']['share']:.0f} % of 10 samples of everything")
    ours = judged["quality"]["whet"]
    if ours is None:
        return False
    whole = ours["sizes"] == len(asked.sizes)
    return bool(whole and ours["geometric_mean"] >= WANTED_MEAN)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", default="softmax,attention")
    parser.add_argument("--no-stock", action="store_true")
    parser.add_argument("--no-referee", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--compile-budget", type=float, default=90.0, help="seconds, all configs")
    parser.add_argument("--compile-limit", type=float, default=30.0, help="seconds a config")
    parser.add_argument("--bench-budget", type=float, default=90.0, help="seconds, all sizes")
    parser.add_argument("--judge-limit", type=float, default=90.0)
    parser.add_argument("--samples", type=int, default=30, help="of the referee")
    options = parser.parse_args()
    byte_compile()
    record = Record(options.json)
    good = []
    for name in options.kernels.split(","):
        one_kernel(name, options, record)
        good.append(print_kernel(name, record.rows[name]))
        sys.stdout.flush()
    raise SystemExit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
