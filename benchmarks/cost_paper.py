"""The cost paper's tables on this GPU, beside what it published for an A40.

    python benchmarks/cost_paper.py [PART …] [--json FILE]

Parts, each with its own limit of time; without any, all of them, some 7 minutes:

    compile    table 1: compile time by config, stock, the tutorial's 16 configs
    sizes      table 2: tuning time by size without compiling, stock and whet
    gpu-time   table 3: GPU time in the product and in clearing, by what is cleared
    total      table 5: time to benchmark by what is cleared
    workers    table 7: compile time by number of workers
    estimate   figure 2: repetition time asked for and got, stock; and the precision whet got
    quality    how near the picks come to the best, by what is cleared
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cold import Answer, Record, byte_compile, child
from contest import Patience, picks_of, quality, side, stock_compiles
from problems import PAPER_SIZES, TABLE_2_SIZES, Problem, problem, size_text, text_of

# As published: A40, 48 cores, Triton of 2024.
TABLE_1_MS: dict[tuple[int, ...], float] = {
    (128, 256, 64): 837.82,
    (64, 256, 32): 759.06,
    (128, 128, 32): 681.80,
    (256, 64, 128): 2638.25,
    (64, 128, 64): 560.03,
    (128, 32, 64): 419.68,
}
TABLE_1_TOTAL_S = 15.17
TABLE_2_S = {
    256: 1.17,
    384: 1.17,
    640: 1.17,
    768: 1.17,
    2560: 1.32,
    2688: 1.33,
    3840: 1.45,
    3968: 1.47,
    4096: 1.49,
}
# Seconds in the product and in clearing, four configs × 64 sizes.
TABLE_3_S = {"256 MB": (4.45, 21.42), "off": (4.49, 0.50)}
TABLE_5_S = {"256 MB": 1591.8, "L2": 1170.2, "off": 691.2}
TABLE_7_S = {1: 271.560, 8: 53.007, 16: 37.086, 32: 34.282, 48: 40.523}
FIGURE_2 = "below 0.5 ms a kernel, over 50 of the 100 ms asked for can be missing"

CLEARING = ("256 MB", "L2", "off")
WORKERS = (1, 4, 8, 16, 32)

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


def compile_part(options: argparse.Namespace) -> Any:
    asked = problem("tutorial")
    patience = Patience(compile_s=30.0, compiles_s=options.limit or 60.0)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        found = stock_compiles(asked, range(len(asked.configs)), Path(name), patience)
    rows = []
    for index, row in sorted(found.items()):
        numbers = asked.configs[index]
        block = tuple(numbers[f"BLOCK_SIZE_{letter}"] for letter in "MNK")
        rows.append({"config": numbers, "published_ms": TABLE_1_MS.get(block), **row})
    total_s = sum(row["s"] for row in rows)
    return {"rows": rows, "total_s": total_s, "published_total_s": TABLE_1_TOTAL_S}


def print_compile(found: Any) -> None:
    print("Table 1. Compile time by config, stock, one after another (ms; published: A40)")
    for row in found["rows"]:
        published = f"{row['published_ms']:8.0f}" if row["published_ms"] else "       –"
        note = "" if row["finished"] and not row["problem"] else f"  {row['problem']}"
        print(f"  {text_of(row['config']):32} {1000 * row['s']:8.0f} {published}{note}")
    total = found["published_total_s"]
    print(f"  {'total':32} {1000 * found['total_s']:8.0f} {1000 * total:8.0f}")


def sizes_part(options: argparse.Namespace) -> Any:
    asked = problem("tutorial")
    limit_s = options.limit or 60.0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        patience = Patience(compile_s=30.0, compiles_s=60.0)
        done = stock_compiles(asked, range(len(asked.configs)), folder, patience)
        good = sorted(i for i, row in done.items() if row["finished"] and not row["problem"])
        payload = {"configs": good, "seconds": limit_s}
        stock = side("stock-bench", asked, payload, folder, limit_s + 60)
        # Triton's cache is full now, so neither side compiles; whet's store is empty.
        whet = side("whet", asked, {"configs": good}, folder, limit_s)
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
    }


def print_sizes(found: Any) -> None:
    print(
        f"Table 2. Tuning time by size, compiled before (s; {found['configs']} configs that fit; "
        "published: A40, 16)"
    )
    for row in found["rows"]:
        cells = [row["stock_s"], row["whet_s"], row["published_s"]]
        text = "  ".join(f"{name} {_s(value)}" for name, value in _named(cells))
        print(f"  {row['size']:5}³  {text}")


def _named(cells: Sequence[Any]) -> list[tuple[str, Any]]:
    return list(zip(("stock", "whet", "published"), cells, strict=True))


def _s(value: float | None, digits: int = 2) -> str:
    return "     –" if value is None else f"{value:6.{digits}f}"


def _cleared(part: str, options: argparse.Namespace, limit_s: float) -> Any:
    """One of the parts that run stock's `do_bench` under each way of clearing."""
    rows: dict[str, Answer] = {}
    asked = problem("gemm:0")
    configs = quick_configs(asked, 4)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        for clearing in CLEARING:
            arguments = [part, "--clearing", clearing, "--configs", ",".join(map(str, configs))]
            arguments += ["--seconds", str(limit_s / len(CLEARING))]
            rows[clearing] = child("paper_parts.py", arguments, Path(name), limit_s + 60)
    return {"configs": len(configs), "clearing": rows}


def gpu_time_part(options: argparse.Namespace) -> Any:
    return _cleared("gpu-time", options, options.limit or 45.0)


def print_gpu_time(found: Any) -> None:
    print(
        f"Table 3. GPU time by kernel, stock's do_bench, {found['configs']} configs (published: "
        "A40, 4 configs × 64 sizes)"
    )
    for clearing, row in found["clearing"].items():
        if not row.get("sizes"):
            print(f"  {clearing:7} did not finish")
            continue
        product, clear = row["product_s"], row["clearing_s"]
        published = TABLE_3_S.get(clearing)
        beside = f"{published[0]:.2f} s and {published[1]:.2f} s" if published else "–"
        print(
            f"  {clearing:7} product {product:6.3f} s, clearing {clear:6.3f} s "
            f"({100 * clear / max(1e-9, clear + product):.0f} %), other {row['other_s']:.3f} s, "
            f"{row['sizes']} sizes; published {beside}"
        )


def total_part(options: argparse.Namespace) -> Any:
    return _cleared("total", options, options.limit or 60.0)


def print_total(found: Any) -> None:
    print("Table 5. Time to benchmark, stock's do_bench (published: A40, the whole suite)")
    for clearing, row in found["clearing"].items():
        if not row.get("benches"):
            print(f"  {clearing:7} did not finish")
            continue
        each_s = row["seconds"] / row["benches"]
        published = TABLE_5_S[clearing]
        print(
            f"  {clearing:7} {1000 * each_s:6.1f} ms a config and size ({row['benches']} of "
            f"them); 60 configs × 64 sizes: {each_s * 60 * len(PAPER_SIZES):5.0f} s "
            f"(extrapolated); published {published:.0f} s, {TABLE_5_S['256 MB'] / published:.1f}×"
        )


def workers_part(options: argparse.Namespace) -> Any:
    """Whet's own builds, cold, one size, with so many workers."""
    asked = problem("gemm:0")
    configs = quick_configs(asked, 40)
    payload = {"configs": configs, "sizes": [PAPER_SIZES.index((1024, 1024, 1024))]}
    limit_s = options.limit or 100.0
    rows = []
    for workers in WORKERS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            variables = {"WHET_JOBS": str(workers), "WHET_BUILD_LIMIT": "60s"}
            answer = side("whet", asked, payload, Path(name), limit_s, variables=variables)
        rows.append(
            {
                "workers": workers,
                "finished": answer["exit_code"] == 0,
                "builds": answer.get("builds"),
                "wall_s": answer.get("wall_s"),
                "work_s": answer.get("ledger", {}).get("work_s", {}).get("build"),
                "published_s": TABLE_7_S.get(workers),
            }
        )
    return {"configs": len(configs), "rows": rows}


def print_workers(found: Any) -> None:
    print(
        f"Table 7. Compile time by workers, whet's builds of {found['configs']} configs "
        "(published: A40's host, 48 cores, 100 configs)"
    )
    first = found["rows"][0]["builds"]
    for row in found["rows"]:
        builds = row["builds"]
        if not row["finished"] or not builds or not builds["count"]:
            print(f"  {row['workers']:3} workers did not finish")
            continue
        ratio = first["wall_s"] / builds["wall_s"] if first and first["count"] else float("nan")
        published = row["published_s"]
        beside = f"{published:.1f} s, {TABLE_7_S[1] / published:.2f}×" if published else "–"
        print(
            f"  {row['workers']:3} workers {builds['wall_s']:6.2f} s, {ratio:5.2f}×, "
            f"{builds['ok']} of {builds['count']} built; published {beside}"
        )


def estimate_part(options: argparse.Namespace) -> Any:
    limit_s = options.limit or 60.0
    asked = problem("gemm:0")
    sizes = [PAPER_SIZES.index(size) for size in SOME_SIZES]
    configs = quick_configs(asked, 12)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        arguments = ["estimate", "--configs", ",".join(map(str, configs[:2]))]
        arguments += ["--seconds", str(limit_s)]
        stock = child("paper_parts.py", arguments, Path(name), limit_s + 60)
        payload = {"configs": configs, "sizes": sizes}
        whet = side("whet", asked, payload, Path(name), limit_s)
    ours = []
    for run in whet.get("runs", []):
        trial = run["trials"].get(str(run["best"]), {})
        interval = trial.get("interval_us")
        if interval:
            half = (interval[1] - interval[0]) / 2 / trial["median_us"]
            ours.append({"size": run["size"], "half_width": half, **trial})
    return {"rows": stock.get("rows", []), "whet": ours, "ledger": whet.get("ledger")}


def print_estimate(found: Any) -> None:
    print(f"Figure 2. Stock: 100 ms of repetition asked for ({FIGURE_2})")
    for row in sorted(found["rows"], key=lambda row: row["kernel_us"]):
        print(
            f"  {size_text(row['size']):>15}  {row['kernel_us']:8.1f} µs a kernel, "
            f"{row['count']:5} samples, {row['repetition_ms']:6.1f} ms of kernel, "
            f"{row['wall_ms']:6.1f} ms in all"
        )
    print("  whet asks for a precision, not for a time: intervals of the picks' medians")
    for row in sorted(found["whet"], key=lambda row: row["median_us"]):
        size = size_text(PAPER_SIZES[row["size"]])
        print(
            f"  {size:>15}  {row['median_us']:8.1f} µs a kernel, {row['samples']:5} samples, "
            f"±{100 * row['half_width']:.2f} %"
        )


def quality_part(options: argparse.Namespace) -> Any:
    """Stock's picks under each way of clearing, and whet's, judged by the referee."""
    asked = problem("gemm:0")
    configs = quick_configs(asked, 16)
    sizes = [PAPER_SIZES.index(size) for size in SOME_SIZES]
    limit_s = options.limit or 100.0
    picks: dict[str, dict[int, int]] = {}
    common = {"configs": configs, "sizes": sizes}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        whet = side("whet", asked, common, folder, limit_s)
        picks["whet"] = picks_of(whet)
        for clearing in CLEARING:
            payload = {
                **common,
                "clear": clearing,
                "seconds": limit_s / len(CLEARING),
            }
            answer = side("stock-bench", asked, payload, folder, limit_s + 30)
            picks[f"stock, {clearing}"] = picks_of(answer)
        by_size = {size: [p[size] for p in picks.values() if size in p] for size in sizes}
        judged = side("judge", asked, {**common, "picks": by_size}, folder, limit_s)
    rows = judged.get("sizes", [])
    return {
        "configs": len(configs),
        "quality": {name: quality(rows, chosen) for name, chosen in picks.items()},
    }


def print_quality(found: Any) -> None:
    print(
        f"Quality of the pick among {found['configs']} configs, by the referee (cold L2; the "
        "paper has no such table)"
    )
    for name, row in found["quality"].items():
        if row is None:
            print(f"  {name:14} did not finish")
            continue
        print(
            f"  {name:14} geometric mean {100 * row['geometric_mean']:6.2f} %, worst "
            f"{100 * row['worst']:5.1f} % at {size_text(PAPER_SIZES[row['worst_size']])}   "
            f"({row['sizes']} sizes)"
        )


Part = tuple[Callable[[argparse.Namespace], Any], Callable[[Any], None]]

PARTS: dict[str, Part] = {
    "compile": (compile_part, print_compile),
    "sizes": (sizes_part, print_sizes),
    "gpu-time": (gpu_time_part, print_gpu_time),
    "total": (total_part, print_total),
    "workers": (workers_part, print_workers),
    "estimate": (estimate_part, print_estimate),
    "quality": (quality_part, print_quality),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--limit", type=float, help="seconds for each part, in place of its own")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    byte_compile()
    record = Record(options.json)
    wanted = options.parts or list(PARTS)
    for place, name in enumerate(wanted):
        measure, show = PARTS[name]
        record.put(name, measure(options))
        print(end="\n" if place else "")
        show(record.rows[name])


if __name__ == "__main__":
    main()
