"""`whet pareto`: what tuning time buys, and which changes of a tuner buy more."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption
from whet.cli.arguments.tables import ProcessesOption, StudySeedOption
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.cli.terminal.countdown import Countdown
    from whet.replay import Table, TableWorkload

EXAMPLES = """\b
Examples:
  whet pareto h200-gemm-paper
  whet pareto h200-gemm-paper --workload M=1024,N=1024,K=1024
  whet pareto h200-gemm-paper --all-workloads --out study/frontier
  whet pareto h200-gemm-paper --json | jq -r '.verdicts[]'
"""

# The input of the paper's own frontier.
PAPERS_INPUT = {"M": 4096, "N": 256, "K": 4096}


def pareto(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="A recorded table: a path or the name of a shipped one."
        ),
    ],
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            metavar="NAME=VALUE,…",
            help="The workload to use (default: M=4096,N=256,K=4096 if present, else the first).",
            show_default=False,
        ),
    ] = None,
    all_workloads: Annotated[
        bool, typer.Option("--all-workloads", help="Use a different workload for every draw.")
    ] = False,
    search: Annotated[
        str,
        typer.Option("--search", metavar="NAME,…", help="Strategies to add, or 'none'."),
    ] = "auto",
    draws: Annotated[
        int, typer.Option("--draws", metavar="N", min=2, help="Number of hyper-parameter draws.")
    ] = 500,
    runs: Annotated[
        int, typer.Option("--runs", metavar="N", min=4, help="Tuning runs per draw.")
    ] = 30,
    compile_factor: Annotated[
        int, typer.Option("--compile-factor", metavar="N", min=1, help="Number of parallel builds.")
    ] = 16,
    flops: Annotated[
        str | None,
        typer.Option(
            "--flops",
            metavar="EXPR",
            help="Operations per execution, such as '2*M*N*K', for TFLOPS.",
        ),
    ] = None,
    seed: StudySeedOption = 0,
    jobs: ProcessesOption = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="NAME",
            help="Write NAME.svg and NAME.html.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Simulate the trade-off between tuning time and speed.

    Repeats section 5.3.2 of the paper on Triton's tuning cost: random configs, executed for 10 to
    100 ms each; then with parallel compilation and early stopping. Adds racing, whet's strategies,
    and transfer from other workloads.
    """
    from whet.cli.arguments.tables import processes, read_tables, searches_named
    from whet.cli.terminal.output import page, print_json, print_lines
    from whet.cli.text.pareto import study_json, study_lines
    from whet.replay.frontier import study
    from whet.replay.pareto import Draws

    searches = () if search == "none" else searches_named(search)
    read = read_tables([table])[table]
    chosen = _chosen(read, table, workload, all_workloads)
    tflops = None if len(chosen) > 1 else _best_tflops(read, chosen[0], flops)
    plan = Draws(draws=draws, runs=runs, compile_factor=compile_factor, seed=seed)
    found = study(
        read,
        chosen,
        plan,
        searches,
        processes(jobs),
        _part,
    )
    about = _about(read, chosen, plan.draws, plan.runs)
    if json:
        print_json(study_json(found, about, tflops))
    else:
        print_lines(study_lines(found, about, tflops, page()))
    if out:
        _write(out, found, about, tflops)


def _part(name: str, number: int, parts: int) -> Countdown:
    from whet.cli.terminal.countdown import Countdown

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
    from whet.cli.text.pareto import evaluate

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
    from whet.cli.text.pareto import study_figure, study_tables
    from whet.replay.figure import png_possible, write_figure

    figure = study_figure(found, about, tflops)
    for ending in (".svg", ".html", ".png"):
        name = name.removesuffix(ending)
    written = []
    for ending in ("svg", "html", "png") if png_possible() else ("svg", "html"):
        written.append(f"{name}.{ending}")
        write_figure(figure, written[-1], study_tables(found, tflops))
    print(f"whet: wrote {', '.join(written)}", file=sys.stderr)
