"""How `cost_paper.py` shows each part, beside what was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paper_numbers import FIGURE_2, TABLE_3, TABLE_5_S, TABLE_7_S
from problems import PAPER_SIZES, size_text, text_of

KERNELS = ("product", "clearing", "other")


def print_compile(found: Any) -> None:
    print("Table 1. Compile time by config, stock, one after another (ms; published: A40)")
    for row in found["rows"]:
        published = f"{row['published_ms']:8.0f}" if row["published_ms"] else "       –"
        note = "" if row["finished"] and not row["problem"] else f"  {row['problem']}"
        print(f"  {text_of(row['config']):32} {1000 * row['s']:8.0f} {published}{note}")
    total = found["published_total_s"]
    print(f"  {'total':32} {1000 * found['total_s']:8.0f} {1000 * total:8.0f}")


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


def print_gpu_time(found: Any) -> None:
    print(
        f"Table 3. GPU time by kernel, stock's do_bench, {found['configs']} configs × "
        f"{len(found['sizes'])} sizes (published: A40, 4 configs × 64 sizes)"
    )
    for clearing, rows in found["clearing"].items():
        if not rows:
            print(f"  {clearing:7} did not finish")
        for kernel in KERNELS:
            _print_kernel_time(clearing, kernel, [row[kernel] for row in rows])
    print("  by size, ms in the product and in clearing")
    for place, size in enumerate(found["sizes"]):
        cells = [
            f"{clearing}: {1000 * rows[place]['product']['s']:6.1f} and "
            f"{1000 * rows[place]['clearing']['s']:6.1f}"
            for clearing, rows in found["clearing"].items()
        ]
        print(f"  {size_text(size):>15}  {'   '.join(cells)}")


def _print_kernel_time(clearing: str, kernel: str, rows: Sequence[Mapping[str, Any]]) -> None:
    seen = [row for row in rows if row["count"]]
    published = TABLE_3.get(clearing, {}).get(kernel)
    if not seen and published is None:
        return
    text = "none"
    if seen:
        count, s = (sum(row[name] for row in seen) for name in ("count", "s"))
        low, high = min(row["least_us"] for row in seen), max(row["most_us"] for row in seen)
        text = f"{s:6.3f} s, mean {1e6 * s / count:6.1f} µs ({low:.1f} to {high:.1f}, {count})"
    beside = "–"
    if published:
        beside = "{:.2f} s, mean {:.1f} µs ({:.1f} to {:.1f})".format(*published)
    print(f"  {clearing:7} {kernel:8} {text}; published {beside}")


def print_total(found: Any) -> None:
    print(
        f"Table 5. Time to benchmark, stock's do_bench, {found['configs']} configs × "
        f"{len(found['sizes'])} sizes (published: A40, the whole suite)"
    )
    for clearing, rows in found["clearing"].items():
        if not rows:
            print(f"  {clearing:7} did not finish")
            continue
        each_s = sum(row["s"] for row in rows) / sum(row["benches"] for row in rows)
        published = TABLE_5_S[clearing]
        print(
            f"  {clearing:7} {1000 * each_s:6.1f} ms a config and size; 60 configs × 64 sizes: "
            f"{each_s * 60 * len(PAPER_SIZES):5.0f} s (extrapolated); published "
            f"{published:.0f} s, {TABLE_5_S['256 MB'] / published:.1f}×"
        )


def print_workers(found: Any) -> None:
    print(
        f"Table 7. Compile time by workers, whet's builds of {found['configs']} configs of the "
        "suite's 100, those that fit and compile soon (published: A40's host, 48 cores, all 100)"
    )
    first = found["rows"][0]
    for row in found["rows"]:
        builds = row["builds"]
        if not builds or not builds["count"]:
            print(f"  {row['workers']:3} workers did not finish a build")
            continue
        ratio = ""
        if row["finished"] and first["finished"]:
            ratio = f", {first['builds']['wall_s'] / builds['wall_s']:5.2f}×"
        elif not row["finished"]:
            ratio = ", cut short"
        published = row["published_s"]
        beside = f"{published:.1f} s, {TABLE_7_S[1] / published:.2f}×" if published else "–"
        print(
            f"  {row['workers']:3} workers {builds['wall_s']:6.2f} s{ratio}, "
            f"{builds['ok']} of {builds['count']} built; published {beside}"
        )


def print_estimate(found: Any) -> None:
    asked = found["asked_ms"] or {}
    print(
        f"Figure 2. Repetition time got: stock asked for {asked.get('stock', 0):.0f} ms, whet's "
        f"timer for samples of {asked.get('whet', 0):.0f} ms in all (published: {FIGURE_2})"
    )
    for row in sorted(found["rows"], key=lambda row: row["stock"]["kernel_us"]):
        cells = [
            f"{name} {one['kernel_us']:7.1f} µs × {one['count']:5} = {one['repetition_ms']:6.1f} "
            f"ms in {one['wall_ms']:6.1f} ms"
            for name, one in ((name, row[name]) for name in ("stock", "whet"))
        ]
        print(f"  {size_text(row['size']):>15}  {'; '.join(cells)}")
    print("  when it tunes, whet asks for a precision and not for a time: the picks' medians")
    for row in sorted(found["whet"], key=lambda row: row["median_us"]):
        size = size_text(PAPER_SIZES[row["size"]])
        print(
            f"  {size:>15}  {row['median_us']:8.1f} µs a kernel, {row['samples']:5} samples, "
            f"±{100 * row['half_width']:.2f} %"
        )


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
