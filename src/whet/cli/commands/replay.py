"""`whet replay`: how soon a strategy finds what is known to be the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption
from whet.cli.arguments.tables import (
    ProcessesOption,
    RepeatsOption,
    StudySeedOption,
    TablesArgument,
    TransferOption,
    WorkloadsOption,
)
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.replay.lab import Replayed

EXAMPLES = """\b
Examples:
  whet replay h200-gemm-576 --workloads 4
  whet replay mine/*.gz --search auto,random --evals 10,25,50,100
  whet replay h200-gemm-576 --search random --top 5% --workloads 1
  whet replay mine/new.gz --transfer mine/old.gz mine/older.gz
  whet replay mine/*.gz --json | jq '.tables[] | [.table, .found["25"]]'
"""

LOOKS = "10,25,50,100"


def replay(
    tables: TablesArgument,
    search: Annotated[
        str, typer.Option("--search", metavar="NAME,…", help="Strategies to replay.")
    ] = "auto",
    evals: Annotated[
        str | None,
        typer.Option(
            "--evals",
            metavar="N,…",
            help=f"Report after these numbers of evaluations (default: {LOOKS}).",
            show_default=False,
        ),
    ] = None,
    top: Annotated[
        str | None,
        typer.Option(
            "--top",
            metavar="P%",
            help="Report how many repeats tried one of the fastest P % of all configs.",
        ),
    ] = None,
    repeats: RepeatsOption = 20,
    seed: StudySeedOption = 0,
    transfer: TransferOption = None,
    workloads: WorkloadsOption = None,
    jobs: ProcessesOption = None,
    json: JsonOption = False,
) -> None:
    """Run strategies on recorded tables and compare the results.

    A failing config costs an evaluation like any other. Each workload of a table is a row. With
    --top 5%, the default for --evals is 10,30,59: among 59 random configs, one is in the fastest
    5 % with a probability of 95 %; among 30, only 78.5 %.
    """
    from whet.cli.arguments.tables import counts_named, make_cases, processes, searches_named
    from whet.cli.terminal.countdown import Countdown
    from whet.cli.terminal.output import columns, print_json, print_lines
    from whet.cli.text.replay import chance_lines, found_lines
    from whet.replay.lab import Experiment, draws_for
    from whet.replay.lab import replay as run

    share = None if top is None else _share(top)
    if evals is None:
        evals = LOOKS if share is None else f"10,30,{draws_for(share)}"
    searches, looks = searches_named(search), counts_named(evals, "--evals")
    cases = make_cases(tables, transfer, workloads)
    experiment = Experiment(tuple(cases), searches, looks[-1], repeats, seed)
    found = run(experiment, processes(jobs), Countdown("tunings"))
    if json:
        print_json({"v": 1, "tables": [_as_json(one, looks, share) for one in found]})
    elif share is not None:
        print_lines(chance_lines(found, share, looks, repeats, columns()))
    else:
        print_lines(found_lines(found, looks, repeats, columns()))


def _share(text: str) -> float:
    """`"5%"` is 0.05."""
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0.0001 <= share < 1:
        raise UsageError(f"--top '{text}' is not valid; use a percentage, such as 5%")
    return share


def _as_json(one: Replayed, looks: Sequence[int], share: float | None) -> dict[str, Any]:
    from whet.replay.lab import fastest, share_of_repeats

    optimum = one.case.workload.optimum
    by_looks = {str(look): one.fractions(look) for look in looks}
    data = {
        "table": one.case.name,
        "workload": dict(one.case.workload.key),
        "search": one.search,
        "transfer": len(one.case.sources),
        "optimum": None if optimum is None else optimum.ns,
        "found": {look: round(sum(got) / len(got), 6) for look, got in by_looks.items()},
        "worst": {look: round(min(got), 6) for look, got in by_looks.items()},
        "search_ms_per_eval": round(one.search_ms_per_eval, 4),
    }
    if share is not None:
        wanted = fastest(one.case, share)
        data["tried_top"] = {
            str(look): round(share_of_repeats(one, wanted, look), 6) for look in looks
        }
    return data
