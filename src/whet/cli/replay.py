"""`whet replay`: how soon a strategy finds what is known to be the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.options import JsonOption
from whet.cli.tables import (
    ProcessesOption,
    RepeatsOption,
    StudySeedOption,
    TablesArgument,
    TransferOption,
    WorkloadsOption,
)

if TYPE_CHECKING:
    from whet.replay.lab import Replayed

EXAMPLES = """\b
Examples:
  whet replay convolution-A100.kt.json.gz
  whet replay *.gz --search auto,random --evals 10,25,50,100
  whet replay conv-A100.gz --transfer conv-A4000.gz conv-W6600.gz
  whet replay *.gz --json | jq '.tables[] | [.table, .found["25"]]'
"""


def replay(
    tables: TablesArgument,
    search: Annotated[
        str, typer.Option("--search", metavar="NAME,…", help="The strategies.")
    ] = "auto",
    evals: Annotated[
        str,
        typer.Option("--evals", metavar="N,…", help="After how many evaluations to look."),
    ] = "10,25,50,100",
    repeats: RepeatsOption = 20,
    seed: StudySeedOption = 0,
    transfer: TransferOption = None,
    workloads: WorkloadsOption = None,
    jobs: ProcessesOption = None,
    json: JsonOption = False,
) -> None:
    """Tune recorded tables, and say how near the best it came.

    A config that fails costs an evaluation like any other. Each workload of a table is a row.
    """
    from whet.cli.output import columns, print_json, print_lines
    from whet.cli.tables import counter, counts_named, make_cases, processes, searches_named
    from whet.replay.lab import Experiment
    from whet.replay.lab import replay as run

    searches, looks = searches_named(search), counts_named(evals, "--evals")
    cases = make_cases(tables, transfer, workloads)
    experiment = Experiment(tuple(cases), searches, looks[-1], repeats, seed)
    found = run(experiment, processes(jobs), counter("tunings"))
    if json:
        print_json({"v": 1, "tables": [_as_json(one, looks) for one in found]})
        return
    print_lines(_lines(found, looks, repeats, columns()))


def _as_json(one: Replayed, looks: Sequence[int]) -> dict[str, Any]:
    optimum = one.case.workload.optimum
    by_looks = {str(look): one.fractions(look) for look in looks}
    return {
        "table": one.case.name,
        "workload": dict(one.case.workload.key),
        "search": one.search,
        "transfer": len(one.case.sources),
        "optimum": None if optimum is None else optimum.ns,
        "found": {look: round(sum(got) / len(got), 6) for look, got in by_looks.items()},
        "worst": {look: round(min(got), 6) for look, got in by_looks.items()},
        "search_ms_per_eval": round(one.search_ms_per_eval, 4),
    }


def _lines(found: Sequence[Replayed], looks: Sequence[int], repeats: int, width: int) -> list[str]:
    from whet.cli.output import Column, count_text, table
    from whet.cli.tables import case_text

    last = looks[-1]
    layout = [
        Column("table", flexible=True),
        Column("search"),
        *(Column(f"at {look}", align="right") for look in looks),
        Column("worst", align="right"),
        Column("ms/eval", align="right"),
    ]
    rows = [
        (
            case_text(one.case),
            one.search,
            *(_percent(_mean(one.fractions(look))) for look in looks),
            _percent(min(one.fractions(last))),
            f"{one.search_ms_per_eval:.2f}",
        )
        for one in found
    ]
    searches = list(dict.fromkeys(one.search for one in found))
    cases = len(found) // len(searches)
    means = [_mean_row([one for one in found if one.search == name], looks) for name in searches]
    said = f"% of the optimum's speed, mean of {count_text(repeats, 'repeat')}"
    lines = [f"{said}; worst: of the repeats at {last}", ""]
    body = table(layout, [*rows, *means] if cases > 1 else rows, width)
    at = len(body) - len(means)
    return [*lines, *body[:at], "", *body[at:]] if cases > 1 else [*lines, *body]


def _mean_row(mine: Sequence[Replayed], looks: Sequence[int]) -> tuple[str, ...]:
    """Over all tables alike; the worst is that of the worst table."""
    means = [_mean([_mean(one.fractions(look)) for one in mine]) for look in looks]
    worst = min(_mean(one.fractions(looks[-1])) for one in mine)
    return (
        f"mean of {len(mine)}; worst of them",
        mine[0].search,
        *map(_percent, means),
        _percent(worst),
        f"{_mean([one.search_ms_per_eval for one in mine]):.2f}",
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"
