"""`whet lab pareto`: what tuning time buys, and which changes of a tuner buy more."""

from __future__ import annotations

import ast
import html
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from whet.cli.commands.lab import processes, read_tables, searches_named
from whet.cli.terminal.countdown import Countdown
from whet.cli.terminal.output import (
    Column,
    flexible,
    natural_width,
    page,
    print_json,
    print_lines,
    right,
    tables,
    wrap,
)
from whet.core.errors import UsageError
from whet.replay import Table, TableWorkload
from whet.replay.figure import Figure, Series, png_possible, write_figure
from whet.replay.frontier import RACED_DRAWS, Study, study
from whet.replay.pareto import UNKNOWN_OVERHEAD_S, Cloud, Draws

# The input of the paper's own frontier.
PAPERS_INPUT = {"M": 4096, "N": 256, "K": 4096}


def simulate(
    table: str,
    workload: str | None,
    all_workloads: bool,
    search: str,
    plan: Draws,
    flops: str | None,
    jobs: int | None,
    out: str | None,
    json: bool,
) -> None:
    searches = () if search == "none" else searches_named(search)
    read = read_tables([table])[table]
    chosen = _chosen(read, table, workload, all_workloads)
    tflops = None if len(chosen) > 1 else _best_tflops(read, chosen[0], flops)
    found = study(read, chosen, plan, searches, processes(jobs), _part)
    about = _about(read, chosen, plan.draws, plan.runs)
    if json:
        print_json(study_json(found, about, tflops))
    else:
        print_lines(study_lines(found, about, tflops, page()))
    if out:
        _write(out, found, about, tflops)


def _part(name: str, number: int, parts: int) -> Countdown:
    noun = "draws" if name == "racing" else "tunings"
    return Countdown(noun, part=f"part {number} of {parts}, {name}")


def _chosen(table: Table, name: str, wanted: str | None, every: bool) -> list[TableWorkload]:
    works = [one for one in table.workloads if one.optimum is not None]
    if not works:
        raise UsageError(f"no config works on any workload of {name}")
    if every:
        if wanted is not None:
            raise UsageError("use either --workload or --all-workloads, not both")
        return works
    if wanted is None:
        at = next((one for one in works if _matches(one, PAPERS_INPUT)), works[0])
        return [at]
    pairs = dict(part.partition("=")[::2] for part in wanted.split(","))
    found = [one for one in works if _matches(one, pairs)]
    if len(found) == 1:
        return found
    keys = [table.key_text(one, ",") for one in found or works]
    shown = "; ".join(keys[:4]) + ("; …" if len(keys) > 4 else "")
    said = f"matches {len(found)} workloads" if found else f"is not in {name}"
    raise UsageError(f"--workload '{wanted}' {said}; valid: {shown}")


def _matches(workload: TableWorkload, wanted: dict[str, Any]) -> bool:
    key = {name: str(value) for name, value in workload.key.items()}
    return all(key.get(name.strip()) == str(value).strip() for name, value in wanted.items())


def _best_tflops(table: Table, workload: TableWorkload, flops: str | None) -> float | None:
    """The optimum's; None where nobody says how many operations there are."""
    gemm = any(word in table.kernel.lower() for word in ("matmul", "gemm"))
    if flops is None and gemm and {"M", "N", "K"} <= set(workload.key):
        flops = "2*M*N*K"
    if flops is None:
        return None
    assert workload.optimum is not None
    return evaluate(flops, workload.key) / workload.optimum.ns / 1e3


def _about(table: Table, chosen: Sequence[TableWorkload], draws: int, runs: int) -> str:
    what = table.key_text(chosen[0]) if len(chosen) == 1 else f"{len(chosen)} workloads"
    return f"{table.kernel} {what}, {table.device.name}: {draws} draws of {runs} runs".strip()


def _write(name: str, found: Any, about: str, tflops: float | None) -> None:
    figure = study_figure(found, about, tflops)
    for ending in (".svg", ".html", ".png"):
        name = name.removesuffix(ending)
    written = []
    for ending in ("svg", "html", "png") if png_possible() else ("svg", "html"):
        written.append(f"{name}.{ending}")
        write_figure(figure, written[-1], study_tables(found, tflops))
    print(f"whet: wrote {', '.join(written)}", file=sys.stderr)


SHOWN = 20
_REACHED = (0.5, 0.8, 0.9, 0.95, 0.98)

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def evaluate(expression: str, names: Mapping[str, Any]) -> float:
    """Sums and products of numbers and of the key's own."""

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return float(_OPERATORS[type(node.op)](value(node.left), value(node.right)))
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return float(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name) and type(names.get(node.id)) in (int, float):
            return float(names[node.id])
        raise ValueError

    try:
        result = value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError):
        known = ", ".join(name for name, one in names.items() if type(one) in (int, float))
        raise UsageError(
            f"--flops '{expression}' is not valid; use sums and products of numbers and of "
            f"{known or 'nothing: this key has no numbers'}"
        ) from None
    if result <= 0:
        raise UsageError(
            f"--flops '{expression}' gives {result:g}, which is not a number of operations"
        )
    return result


def study_lines(study: Study, about: str, tflops: float | None, width: int) -> list[str]:
    first = study.clouds[0]
    lines = [*wrap(about, width, indent=2), "", f"frontier, {first.name}:"]
    lines += tables(_layout(first, tflops), _spread(_rows(study, first, tflops)), width)
    lines += ["", *wrap("seconds to reach a share of the optimum:", width)]
    layout = [flexible(""), *(right(f"{100 * s:.0f} %") for s in _REACHED)]
    reached = [
        (cloud.name, *(_seconds(study.frontiers[cloud.name].seconds_to(s)) for s in _REACHED))
        for cloud in study.clouds
    ]
    if natural_width(layout, reached) > width:
        reached = [(_short(cells[0]), *cells[1:]) for cells in reached]
    lines += [*tables(layout, reached, width), ""]
    for one in study.comparisons:
        lines += wrap(one.verdict, width, indent=2)
    said = []
    if len(study.clouds[0].configs) > RACED_DRAWS:
        said.append(f"racing is compared on the first {RACED_DRAWS} draws only")
    if not study.overhead_known:
        said.append(f"the table has no overhead per input; assuming {UNKNOWN_OVERHEAD_S} s")
    return [*lines, *(["", *wrap("; ".join(said), width)] if said else [])]


def study_json(study: Study, about: str, tflops: float | None) -> dict[str, Any]:
    return {
        "v": 1,
        "about": about,
        "optimum_tflops": tflops,
        "overhead_known": study.overhead_known,
        "frontiers": [
            {"name": cloud.name, "points": _points(study, cloud, tflops)} for cloud in study.clouds
        ],
        "comparisons": [
            {
                "name": one.name,
                "against": one.against,
                "area": round(one.gain, 6),
                "interval": [round(one.low, 6), round(one.high, 6)],
                "moves": one.moves,
                "seconds": [one.before, one.after],
                "sooner": None if one.sooner is None else [round(end, 6) for end in one.sooner],
            }
            for one in study.comparisons
        ],
        "verdicts": [one.verdict for one in study.comparisons],
    }


def study_figure(study: Study, about: str, tflops: float | None) -> Figure:
    """Each frontier ends where the last of them does, so that all can be read at any time."""
    longest = max(float(one.seconds[-1]) for one in study.frontiers.values())
    scale = tflops or 100.0
    series = []
    for cloud in study.clouds:
        points = _points(study, cloud, tflops)
        seconds = [point["seconds"] for point in points]
        found = [point["fraction"] * scale for point in points]
        series.append(
            Series(
                cloud.name,
                (*seconds, longest),
                (*found, found[-1]),
                titles=(*(_title(cloud.name, point) for point in points), ""),
                steps=True,
            )
        )
    unit = "TFLOPS" if tflops else "% of the optimum"
    notes = tuple(one.verdict for one in study.comparisons)
    return Figure(about, "tuning time (s)", unit, tuple(series), log_x=True, notes=notes)


def study_tables(study: Study, tflops: float | None) -> str:
    """Every frontier in full, as HTML."""
    parts = []
    for cloud in study.clouds:
        head = "".join(f"<th>{html.escape(one.title)}</th>" for one in _layout(cloud, tflops))
        rows = "\n".join(
            "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
            for row in _rows(study, cloud, tflops)
        )
        name = html.escape(cloud.name)
        parts.append(
            f"<details><summary>{name}</summary><table><tr>{head}</tr>\n{rows}</table></details>\n"
        )
    return "".join(parts)


def _short(name: str) -> str:
    """`racing + parallel compilation (16×)` is `racing + parallel (16×)`."""
    return name.replace("parallel compilation", "parallel")


def _points(study: Study, cloud: Cloud, tflops: float | None) -> list[dict[str, Any]]:
    frontier = study.frontiers[cloud.name]
    points = []
    for row, seconds, fraction in zip(
        frontier.rows, frontier.seconds, frontier.fraction, strict=True
    ):
        point = {"seconds": round(float(seconds), 6), "fraction": round(float(fraction), 6)}
        if tflops is not None:
            point["tflops"] = round(float(fraction) * tflops, 3)
        point["configs"] = int(cloud.configs[row])
        if cloud.exec_ms is not None:
            point["exec_ms"] = round(float(cloud.exec_ms[row]), 1)
        points.append(point)
    return points


def _layout(cloud: Cloud, tflops: float | None) -> list[Column]:
    titles = ["tuning time", "% of optimum", *(["TFLOPS"] if tflops else []), "N_CONFIG"]
    titles += [] if cloud.exec_ms is None else ["EXEC_TIME"]
    return [right(title) for title in titles]


def _rows(study: Study, cloud: Cloud, tflops: float | None) -> list[tuple[str, ...]]:
    rows = []
    for point in _points(study, cloud, tflops):
        cells = [_seconds(point["seconds"]), f"{100 * point['fraction']:.1f}"]
        cells += [f"{point['tflops']:.1f}"] if "tflops" in point else []
        cells.append(str(point["configs"]))
        cells += [f"{point['exec_ms']:.0f} ms"] if "exec_ms" in point else []
        rows.append(tuple(cells))
    return rows


def _spread(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The first, the last, and evenly spread ones in between."""
    picked = np.linspace(0, len(rows) - 1, min(SHOWN, len(rows))).round().astype(int)
    return [rows[at] for at in picked]


def _title(name: str, point: Mapping[str, Any]) -> str:
    text = f"{name}: {100 * point['fraction']:.1f} % of the optimum after {point['seconds']:.3g} s"
    return f"{text}, {point['configs']} configs"


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.3g} s"
