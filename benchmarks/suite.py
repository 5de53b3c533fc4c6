"""The cost paper's suite: 100 random GEMM configs, 64 sizes, everything cold.

    python benchmarks/suite.py [--seeds 0,1,2] [--stock] [--referee] [--again] [--json FILE]

For each seed whet tunes all 64 sizes, one call after another, in a process with empty caches.
`--again` does so a second time and compares the picks. `--stock` measures triton.autotune in the
time it is given: compiles of at least 40 configs that fit, a few of the others, and its benchmark
at 4 sizes; the rest of it is worked out and marked, and whet tunes what stock finished once more,
cold, for a ratio without extrapolation. With `--stock-jobs` the compiles that are left run several
at once, and their times are put right by what that costs. `--referee` times every usable config at
every size, 30 samples each and 120 more of the best dozen, with a timer that uses nothing of whet,
in the process that tuned: where tensors lie in memory changes the order of close configs by several
percent. `--elsewhere` does so in a new process as well.
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
    CUT,
    OVERSIZED,
    USABLE,
    Judging,
    Patience,
    agreement,
    compile_order,
    judged_elsewhere,
    kinds_of,
    picks_of,
    quality,
    racing_share,
    side,
    side_by_side,
    stock_compiles,
    stock_total,
)
from problems import PAPER_SIZES, Problem, problem, size_text

STOCK_SIZES = ((256, 256, 256), (512, 4096, 256), (1024, 1024, 1024), (4096, 4096, 4096))
WHET_LIMIT_S = 120.0
JUDGE_LIMIT_S = 150.0
WANTED_S, WANTED_RATIO = 15.0, 80.0
WANTED_MEAN, WANTED_WORST = 0.995, 0.97
WANTED_SAME = 62


def stock_side(asked: Problem, kinds: dict[int, str], options: argparse.Namespace) -> Any:
    """Stock in its budget, then whet on the very subset that stock finished."""
    patience = Patience(options.compile_limit, options.stock_budget, options.bench_budget)
    sizes = [PAPER_SIZES.index(size) for size in STOCK_SIZES]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        order = compile_order(kinds, options.stock_configs)
        compiles = stock_compiles(asked, order, Path(name), patience)
        rest = [i for i in order if i not in compiles or not compiles[i]["finished"]]
        if options.stock_jobs:
            limit_s, jobs = options.rest_limit, options.stock_jobs
            compiles |= side_by_side(asked, rest, compiles, Path(name), limit_s, jobs)
        good = sorted(
            i
            for i, row in compiles.items()
            if row["finished"]
            and not row["problem"]
            and "slowed" not in row  # its binary lies elsewhere
            and kinds[i] == USABLE
        )
        payload = {"configs": good, "sizes": sizes, "seconds": patience.benches_s}
        benches = side("stock-bench", asked, payload, Path(name), patience.benches_s + 60)
    rows = benches.get("sizes", [])
    found = {
        "compiles": compiles,
        "benches": rows,
        "device": benches.get("device"),
        **stock_total(kinds, compiles, rows, len(PAPER_SIZES)),
    }
    return {**found, "subset": _subset(asked, compiles, rows)}


def _subset(asked: Problem, compiles: Mapping[int, Any], rows: list[Any]) -> Any:
    finished = sorted(i for i, row in compiles.items() if row["finished"] and "slowed" not in row)
    sizes = [row["size"] for row in rows if row["finished"]]
    if not finished or not sizes:
        return None
    payload = {"configs": finished, "sizes": sizes}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        tuned = side("whet", asked, payload, Path(name), WHET_LIMIT_S)
    stock_s = sum(compiles[index]["s"] for index in finished)
    stock_s += sum(row["s"] for row in rows if row["finished"])
    whet_s = tuned.get("wall_s")
    return {
        "configs": len(finished),
        "sizes": len(sizes),
        "stock_s": stock_s,
        "whet_s": whet_s,
        "times_less": stock_s / whet_s if whet_s else None,
    }


def judging(options: argparse.Namespace) -> dict[str, Any]:
    """What the tuning side is asked to do after it has tuned."""
    if not options.referee:
        return {}
    asked = {"samples": options.samples, "cut_limit": options.cut_limit}
    return {"judge": asked}


def one_seed(seed: int, options: argparse.Namespace, record: Record) -> dict[str, Any]:
    asked = problem(f"gemm:{seed}")
    row: dict[str, Any] = {}

    def keep(part: str, found: Any) -> None:
        row[part] = found
        record.put(f"seed {seed}", row)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        tuned = side("whet", asked, judging(options), folder, WHET_LIMIT_S + options.judge_limit)
        judged = tuned.pop("judged", None)
        keep("whet", tuned)
        kinds = kinds_of(asked, tuned)
        keep("kinds", {kind: list(kinds.values()).count(kind) for kind in set(kinds.values())})
        picks = {"whet": picks_of(tuned)}
        if options.again:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as other:
                again = side("whet", asked, {}, Path(other), WHET_LIMIT_S)
            keep("again", again)
            keep("agreement", agreement(tuned, again))
            picks["again"] = picks_of(again)
        if options.stock:
            keep("stock", stock_side(asked, kinds, options))
            picks["stock"] = picks_of({"sizes": row["stock"]["benches"]})
        if judged:
            found = quality(judged["sizes"], picks["whet"])
            keep("referee", {**judged, "quality": {"whet": found}})
            keep("racing", racing_share(tuned, judged["sizes"]))
        if options.elsewhere:
            limits = Judging(options.cut_limit, options.judge_limit, options.samples)
            keep("elsewhere", judged_elsewhere(asked, kinds, picks, folder, limits))
    return row


def print_seed(seed: int, row: Mapping[str, Any]) -> bool:
    """The table of one seed; False where something falls short of what is wanted."""
    tuned = row["whet"]
    wall_s = tuned.get("wall_s")
    kinds = row["kinds"]
    print(f"\nseed {seed}: {tuned.get('device', 'no device')}")
    print(
        f"  configs: {kinds.get(USABLE, 0)} usable, {kinds.get(OVERSIZED, 0)} exceed shared "
        f"memory, {kinds.get(CUT, 0)} cut, {kinds.get('broken', 0)} others"
    )
    if wall_s is None or "ledger" not in tuned:
        print(f"  whet: DID NOT FINISH (exit code {tuned['exit_code']}), {wall_s} s so far")
        return False
    good = bool(wall_s <= WANTED_S and tuned["right"] and tuned["exit_code"] == 0)
    ledger = tuned["ledger"]["wall_s"]
    phases = ", ".join(f"{phase} {s:.1f}" for phase, s in sorted(ledger.items()) if s >= 0.05)
    print(
        f"  whet: {wall_s:.1f} s for {len(tuned['calls'])} sizes (first "
        f"{tuned['calls'][0]['s']:.1f} s; {phases}); results "
        f"{'right' if tuned['right'] else 'WRONG'}"
    )
    if tuned["exit_code"] != 0:
        print(f"  referee: DID NOT FINISH (exit code {tuned['exit_code']})")
    if "again" in row:
        good &= _print_again(row)
    if "stock" in row:
        good &= _print_stock(row["stock"], wall_s)
    if "referee" in row:
        good &= _print_referee(row["referee"], "in the process that tuned", row.get("racing"))
    if "elsewhere" in row:
        _print_referee(row["elsewhere"], "in another process, other addresses", None)
    return good


def _print_again(row: Mapping[str, Any]) -> bool:
    found = row["agreement"]
    agree = found["same"] + found["equal"]
    print(
        f"  again: {row['again'].get('wall_s', float('nan')):.1f} s; of {found['sizes']} sizes "
        f"{found['same']} the same pick, {found['equal']} called equal, {found['samples']} more "
        f"by overlapping samples, {found['differ']} differ"
    )
    return bool(agree + found["samples"] >= WANTED_SAME)


def _print_stock(stock: Mapping[str, Any], wall_s: float) -> bool:
    print(
        f"  stock: {stock['compiles_finished']} of {stock['compiles_measured']} compiles finished "
        f"in {stock['compiles_measured_s']:.0f} s; {1000 * stock['bench_each_s']:.0f} ms a "
        f"benchmark ({stock['benches_measured']} of {stock['usable'] * len(PAPER_SIZES)})"
    )
    ratio = stock["extrapolated_s"] / wall_s
    mark = " (extrapolated)" if stock["extrapolated"] else ""
    print(
        f"  stock, all of it: {stock['extrapolated_s']:.0f} s{mark}, {ratio:.0f}× whet; with only "
        f"the compile time spent {stock['lower_s']:.0f} s, {stock['lower_s'] / wall_s:.0f}×"
    )
    subset = stock["subset"]
    if subset and subset["times_less"]:
        print(
            f"  finished by both: {subset['configs']} configs × {subset['sizes']} sizes, stock "
            f"{subset['stock_s']:.1f} s, whet {subset['whet_s']:.1f} s: "
            f"{subset['times_less']:.0f}×"
        )
    return bool(ratio >= WANTED_RATIO)


def _pair(found: Mapping[str, float], kind: str) -> str:
    return f"{100 * found[f'{kind}_geometric_mean']:.2f} / {100 * found[f'{kind}_worst']:.1f} %"


def _print_referee(judged: Mapping[str, Any], where: str, racing: Any) -> bool:
    good = True
    print(
        f"  referee, {where}: {judged['usable']} configs × {len(judged['sizes'])} sizes in "
        f"{judged['s']:.0f} s; cut by whet and in the reference {len(judged['late'])}, not in it "
        f"{len(judged['not_compiled'])}"
    )
    for name, found in judged["quality"].items():
        if found is None:
            continue
        print(
            f"    {name:6} geometric mean {100 * found['geometric_mean']:.2f} %, worst "
            f"{100 * found['worst']:.1f} % at {size_text(PAPER_SIZES[found['worst_size']])}   "
            f"({found['sizes']} sizes)\n"
            f"           by medians {_pair(found, 'medians')}, net of the events "
            f"{_pair(found, 'net')}, against the first samples' best by the later ones "
            f"{_pair(found, 'rematch')}\n"
            f"           by the later samples alone {_pair(found, 'later')}; the referee's own "
            f"best by half of these visits, judged by the others: {_pair(found, 'itself')}\n"
            f"           by the first samples alone {_pair(found, 'first')}; what the later ones "
            f"call best: {_pair(found, 'ideal')}"
        )
        if name == "whet":
            good &= found["geometric_mean"] >= WANTED_MEAN and found["worst"] >= WANTED_WORST
            good &= found["sizes"] == len(PAPER_SIZES)
    if racing:
        print(
            f"    kernel time: {racing['kernel_s']:.2f} s, {100 * racing['share']:.0f} % of 10 "
            f"samples of everything (without warm-up {100 * racing['share_without_warmup']:.0f} %)"
        )
    return good


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--referee", action="store_true")
    parser.add_argument("--elsewhere", action="store_true", help="referee in a new process too")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--stock-budget", type=float, default=150.0, help="seconds of compiling")
    parser.add_argument("--stock-configs", type=int, default=40, help="usable ones come first")
    parser.add_argument("--compile-limit", type=float, default=30.0, help="seconds a config")
    parser.add_argument(
        "--stock-jobs", type=int, default=0, help="compile the rest so many at once"
    )
    parser.add_argument("--rest-limit", type=float, default=250.0, help="seconds for one of these")
    parser.add_argument("--bench-budget", type=float, default=45.0, help="seconds of benchmarks")
    parser.add_argument("--samples", type=int, default=30, help="of the referee")
    parser.add_argument("--cut-limit", type=float, default=45.0, help="for configs whet cut")
    parser.add_argument("--judge-limit", type=float, default=JUDGE_LIMIT_S)
    options = parser.parse_args()
    byte_compile()
    record = Record(options.json)
    good = []
    for seed in map(int, options.seeds.split(",")):
        good.append(print_seed(seed, one_seed(seed, options, record)))
        sys.stdout.flush()
    raise SystemExit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
