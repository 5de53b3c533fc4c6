"""The cost paper's tables on this GPU, beside what it published for an A40.

    python benchmarks/cost_paper.py [PART …] [--limit [PART=]SECONDS …] [--json FILE]

Parts; without any, all of them, some 6 minutes. Each has a limit of time, which `--limit` replaces
for one part or for all, and says so where it was cut short:

    compile    table 1: compile time by config, stock, the tutorial's 16 configs
    sizes      table 2: tuning time by size without compiling, stock and whet
    gpu-time   table 3: GPU time by kernel, the product and clearing, by what is cleared
    total      table 5: time to benchmark by what is cleared
    workers    table 7: compile time by number of workers
    estimate   figure 2: repetition time asked for and got, stock and whet; whet's own precision
    quality    how near the picks come to the best, by what is cleared
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cold import Answer, Record, byte_compile, child
from contest import Patience, picks_of, quality, side, stock_compiles
from paper_numbers import TABLE_1_MS, TABLE_1_TOTAL_S, TABLE_2_S, TABLE_7_S
from paper_tables import (
    print_compile,
    print_estimate,
    print_gpu_time,
    print_quality,
    print_sizes,
    print_total,
    print_workers,
)
from problems import PAPER_SIZES, TABLE_2_SIZES, Problem, problem

CLEARING = ("256 MB", "L2", "off")
WORKERS = (1, 2, 4, 8, 16, 32)
WORKERS_CONFIGS = 32

# What each part may take on the device; processes start and end beside it.
LIMITS_S = {
    "compile": 60.0,
    "sizes": 60.0,
    "gpu-time": 36.0,
    "total": 36.0,
    "workers": 90.0,
    "estimate": 30.0,
    "quality": 90.0,
}
START_S = 60.0

# The suite is 64 sizes; these are the corners and the middle of it, small to large.
SOME_SIZES = (
    (256, 256, 256),
    (512, 512, 512),
    (256, 4096, 256),
    (1024, 1024, 1024),
    (256, 1024, 4096),
    (4096, 256, 4096),
    (4096, 4096, 512),
    (4096, 4096, 4096),
)

# Shared memory is filled by the operands' blocks, once a stage; two bytes an element.
SHARED_BYTES = 227 * 1024


def _fits(numbers: Mapping[str, int]) -> bool:
    m, n, k = (numbers[f"BLOCK_SIZE_{letter}"] for letter in "MNK")
    return 2 * k * (m + n) * numbers["num_stages"] <= SHARED_BYTES


def quick_configs(asked: Problem, count: int) -> list[int]:
    """The first that fit and compile in a second or two: no vast blocks for few warps."""
    good = [
        index
        for index, numbers in enumerate(asked.configs)
        if _fits(numbers)
        and numbers["BLOCK_SIZE_M"] * numbers["BLOCK_SIZE_N"] <= 4096 * numbers["num_warps"]
        and numbers["BLOCK_SIZE_K"] <= 128
    ]
    return good[:count]


def compile_part(limit_s: float) -> Any:
    asked = problem("tutorial")
    patience = Patience(compile_s=30.0, compiles_s=limit_s)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        found = stock_compiles(asked, range(len(asked.configs)), Path(name), patience)
    rows = []
    for index, row in sorted(found.items()):
        numbers = asked.configs[index]
        block = tuple(numbers[f"BLOCK_SIZE_{letter}"] for letter in "MNK")
        rows.append({"config": numbers, "published_ms": TABLE_1_MS.get(block), **row})
    total_s = sum(row["s"] for row in rows)
    finished = sum(row["finished"] for row in rows)
    return {
        "rows": rows,
        "total_s": total_s,
        "published_total_s": TABLE_1_TOTAL_S,
        "cut": _short(finished, len(asked.configs), "configs"),
    }


def _short(done: int, wanted: int, what: str) -> list[str]:
    """What is said of a part that did not come to its end."""
    return [f"{done} of {wanted} {what}"] if done < wanted else []


def sizes_part(limit_s: float) -> Any:
    asked = problem("tutorial")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        patience = Patience(compile_s=30.0, compiles_s=60.0)
        done = stock_compiles(asked, range(len(asked.configs)), folder, patience)
        good = sorted(i for i, row in done.items() if row["finished"] and not row["problem"])
        payload = {"configs": good, "seconds": limit_s}
        stock = side("stock-bench", asked, payload, folder, limit_s + START_S)
        # Triton's cache is full now, so neither side compiles; whet's store is empty.
        whet = side("whet", asked, {"configs": good}, folder, limit_s + START_S)
    seconds = {row["size"]: row["s"] for row in stock.get("sizes", []) if row["finished"]}
    ours = {row["size"]: row["s"] for row in whet.get("calls", [])}
    return {
        "configs": len(good),
        "rows": [
            {
                "size": size[0],
                "stock_s": seconds.get(place),
                "whet_s": ours.get(place),
                "published_s": TABLE_2_S[size[0]],
            }
            for place, size in enumerate(TABLE_2_SIZES)
        ],
        "cut": [
            *_short(len(seconds), len(TABLE_2_SIZES), "sizes by stock"),
            *_short(len(ours), len(TABLE_2_SIZES), "sizes by whet"),
        ],
    }


def _cleared(part: str, configs: Sequence[int], limit_s: float) -> Any:
    """One of the parts that run stock's `do_bench` under each way of clearing, at the sizes that
    all of them came to."""
    answers: dict[str, Answer] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        for clearing in CLEARING:
            arguments = [part, "--clearing", clearing, "--configs", ",".join(map(str, configs))]
            arguments += ["--seconds", str(limit_s / len(CLEARING))]
            answers[clearing] = child("paper_parts.py", arguments, Path(name), limit_s + START_S)
    came_to = {clearing: len(answer.get("sizes", [])) for clearing, answer in answers.items()}
    shared = min(came_to.values())
    return {
        "configs": len(configs),
        "sizes": [row["size"] for row in answers[CLEARING[0]].get("sizes", [])[:shared]],
        "clearing": {name: answer.get("sizes", [])[:shared] for name, answer in answers.items()},
        "cut": _short(shared, len(PAPER_SIZES), "sizes")
        + [
            f"{name}: exit code {answer['exit_code']} after {came_to[name]} sizes"
            for name, answer in answers.items()
            if answer["exit_code"] != 0
        ],
    }


def gpu_time_part(limit_s: float) -> Any:
    """Two configs: the profiler takes the longer the more it sees."""
    return _cleared("gpu-time", quick_configs(problem("gemm:0"), 2), limit_s)


def total_part(limit_s: float) -> Any:
    return _cleared("total", quick_configs(problem("gemm:0"), 4), limit_s)


def workers_part(limit_s: float) -> Any:
    """Whet's own builds, cold, one size, with so many workers.

    The limit is for all of them. The many go first, since they take the least, and what they leave
    is for the few.
    """
    asked = problem("gemm:0")
    configs = quick_configs(asked, WORKERS_CONFIGS)
    size = PAPER_SIZES.index((1024, 1024, 1024))
    payload = {"configs": configs, "sizes": [size], "note_builds": True}
    rows, end = [], time.perf_counter() + limit_s
    for workers in reversed(WORKERS):
        left_s = max(1.0, end - time.perf_counter())
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            variables = {"WHET_JOBS": str(workers), "WHET_BUILD_LIMIT": "60s"}
            answer = side("whet", asked, payload, Path(name), left_s, variables=variables)
        rows.append(
            {
                "workers": workers,
                "finished": answer.get("builds", {}).get("count", 0) >= len(configs),
                "builds": answer.get("builds"),
                "wall_s": answer.get("wall_s"),
                "work_s": answer.get("ledger", {}).get("work_s", {}).get("build"),
                "process_s": answer["process_s"],
                "published_s": TABLE_7_S.get(workers),
            }
        )
    rows.reverse()
    cut = [f"{row['workers']} workers" for row in rows if not row["finished"]]
    return {"configs": len(configs), "rows": rows, "cut": cut}


def estimate_part(limit_s: float) -> Any:
    asked = problem("gemm:0")
    sizes = [PAPER_SIZES.index(size) for size in SOME_SIZES]
    configs = quick_configs(asked, 12)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        arguments = ["estimate", "--configs", ",".join(map(str, configs[:2]))]
        arguments += ["--seconds", str(limit_s)]
        benched = child("paper_parts.py", arguments, Path(name), limit_s + START_S)
        payload = {"configs": configs, "sizes": sizes}
        whet = side("whet", asked, payload, Path(name), limit_s + START_S)
    ours = []
    for run in whet.get("runs", []):
        trial = run["trials"].get(str(run["best"]), {})
        interval = trial.get("interval_us")
        if interval:
            half = (interval[1] - interval[0]) / 2 / trial["median_us"]
            ours.append({"size": run["size"], "half_width": half, **trial})
    came_to = len({tuple(row["size"]) for row in benched.get("rows", [])})
    return {
        "rows": benched.get("rows", []),
        "asked_ms": benched.get("asked_ms"),
        "whet": ours,
        "ledger": whet.get("ledger"),
        "cut": [
            *_short(came_to, benched.get("wanted_sizes", 1), "sizes"),
            *_short(len(ours), len(sizes), "sizes tuned"),
        ],
    }


def quality_part(limit_s: float) -> Any:
    """Stock's picks under each way of clearing, and whet's, judged by the referee."""
    asked = problem("gemm:0")
    configs = quick_configs(asked, 16)
    sizes = [PAPER_SIZES.index(size) for size in SOME_SIZES]
    picks: dict[str, dict[int, int]] = {}
    common = {"configs": configs, "sizes": sizes}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        whet = side("whet", asked, common, folder, limit_s + START_S)
        picks["whet"] = picks_of(whet)
        for clearing in CLEARING:
            payload = {
                **common,
                "clear": clearing,
                "seconds": limit_s / len(CLEARING),
            }
            answer = side("stock-bench", asked, payload, folder, limit_s + START_S)
            picks[f"stock, {clearing}"] = picks_of(answer)
        by_size = {size: [p[size] for p in picks.values() if size in p] for size in sizes}
        payload = {**common, "picks": by_size}
        judged = side("judge", asked, payload, folder, limit_s + START_S)
    rows = judged.get("sizes", [])
    return {
        "configs": len(configs),
        "quality": {name: quality(rows, chosen) for name, chosen in picks.items()},
        "cut": [
            text
            for name, chosen in picks.items()
            for text in _short(len(chosen), len(sizes), f"sizes by {name}")
        ]
        + _short(len(rows), len(sizes), "sizes by the referee"),
    }


Part = tuple[Callable[[float], Any], Callable[[Any], None]]

PARTS: dict[str, Part] = {
    "compile": (compile_part, print_compile),
    "sizes": (sizes_part, print_sizes),
    "gpu-time": (gpu_time_part, print_gpu_time),
    "total": (total_part, print_total),
    "workers": (workers_part, print_workers),
    "estimate": (estimate_part, print_estimate),
    "quality": (quality_part, print_quality),
}


def limits_of(given: Sequence[str]) -> dict[str, float]:
    """Seconds by part, from `["60", "workers=90"]`; those named outrank the others."""
    limits = dict(LIMITS_S)
    for text in sorted(given, key=lambda text: "=" in text):
        part, named, seconds = text.rpartition("=")
        if named and part not in LIMITS_S:
            raise ValueError(f"no such part: {part}; there are {', '.join(LIMITS_S)}")
        limits |= dict.fromkeys([part] if named else LIMITS_S, float(seconds))
    return limits


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="[PART=]SECONDS",
        help="for one part or each of them, in place of "
        + ", ".join(f"{part} {seconds:.0f}" for part, seconds in LIMITS_S.items()),
    )
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    try:
        limits = limits_of(options.limit)
    except ValueError as error:
        parser.error(f"--limit: {error}")
    byte_compile()
    record = Record(options.json)
    for place, name in enumerate(options.parts or list(PARTS)):
        measure, show = PARTS[name]
        start = time.perf_counter()
        found = measure(limits[name])
        record.put(name, {**found, "took_s": time.perf_counter() - start})
        print(end="\n" if place else "")
        show(found)
        for text in found["cut"]:
            print(f"  CUT SHORT: {text}")
        print(f"  ({record.rows[name]['took_s']:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
