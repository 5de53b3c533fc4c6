"""What the commands that study recorded tables have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.terminal.help import PlainCommand
from whet.cli.terminal.output import say
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.core.space import Space
    from whet.learn.prior import Prior
    from whet.replay import Table
    from whet.replay.lab import Case, TableSource

TablesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="TABLE",
        help="Tables in whet's own format, Kernel Tuner caches or T4 files; or names of "
        "shipped tables.",
        show_default=False,
    ),
]
RepeatsOption = Annotated[
    int, typer.Option("--repeats", metavar="N", min=1, help="Tuning runs per strategy and table.")
]
StudySeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="Seed of the first repeat.")
]
WorkloadsOption = Annotated[
    int | None,
    typer.Option(
        "--workloads",
        metavar="N",
        min=1,
        help="Use only N evenly spread workloads of a larger table (default: all).",
        show_default=False,
    ),
]
ProcessesOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        help="Parallel tuning runs (default: usable cores).",
        show_default=False,
    ),
]
TransferOption = Annotated[
    list[str] | None,
    typer.Option(
        "--transfer",
        metavar="TABLE…",
        help="Learn from these tables first, but never from the workload itself; must come last.",
        show_default=False,
    ),
]


class TransferCommand(PlainCommand):
    """`--transfer` takes all names up to the next option, as its help says."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spread: list[str] = []
        following = False
        for word in args:
            if following and spread[-1] != "--transfer" and not word.startswith("-"):
                spread.append("--transfer")
            following = word == "--transfer" or (following and not word.startswith("-"))
            spread.append(word)
        return super().parse_args(ctx, spread)


def read_tables(names: Iterable[str]) -> dict[str, Table]:
    """By the names they were asked for with; what is odd about a file goes to stderr."""
    from whet.replay import read_table

    tables = {}
    for name in dict.fromkeys(names):
        tables[name] = read_table(name)
        for note in tables[name].notes:
            say(f"whet: note: {name}: {note}")
        if not tables[name].workloads:
            raise UsageError(f"{name} has no workload to replay")
    return tables


def make_cases(
    names: Sequence[str], transfer: Sequence[str] | None, workloads: int | None
) -> list[Case]:
    from whet.replay.lab import TableSource, cases_of

    tables = read_tables([*names, *(transfer or ())])
    cases = [
        case for name in dict.fromkeys(names) for case in cases_of(name, tables[name], workloads)
    ]
    broken = [case for case in cases if case.workload.optimum is None]
    for case in broken:
        say(f"whet: note: {case_text(case)}: skipped, no config works")
    cases = [case for case in cases if case not in broken]
    if not cases:
        raise UsageError("no workload in these tables has a working config")
    if not transfer:
        return cases
    others = [
        TableSource(name, tables[name], workload)
        for name in dict.fromkeys(transfer)
        for workload in tables[name].workloads
    ]
    return [_with_sources(case, others) for case in cases]


def _with_sources(case: Case, others: Sequence[TableSource]) -> Case:
    made = case.with_sources(others)
    if not made.sources:
        say(
            f"whet: note: {case_text(case)}: nothing to learn from; no other workload given "
            "with --transfer has the same parameters"
        )
    return made


def from_tables(names: Sequence[str]) -> Callable[[Space], Prior | None]:
    """What these tables say about a space that has their parameters."""
    from whet.learn.prior import prior_from
    from whet.replay.lab import TableSource

    sources = [
        TableSource(name, table, workload)
        for name, table in read_tables(names).items()
        for workload in table.workloads
    ]

    def known(space: Space) -> Prior | None:
        first = space.first
        wanted = set() if first is None else set(first)
        alike = [source.trials for source in sources if source.names == wanted]
        if not alike:
            say(
                "whet: note: nothing to learn from; no table given with --transfer has the "
                f"parameters {', '.join(sorted(wanted))}"
            )
        return prior_from(alike, space) if alike else None

    return known


def searches_named(text: str) -> tuple[str, ...]:
    from whet.search import check_search

    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        check_search(name)
    return names


def counts_named(text: str, option: str) -> tuple[int, ...]:
    """`"10,25"` is (10, 25)."""
    try:
        counts = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        counts = (0,)
    if counts[0] < 1:
        raise UsageError(f"{option} '{text}' is not valid; use whole numbers, such as 10,25,50")
    return counts


def short_name(name: str) -> str:
    """`folder/convolution-A100.kt.json.gz` is `convolution-A100`."""
    return name.rpartition("/")[2].partition(".")[0] or name


def key_text(case: TableSource) -> str:
    return case.table.key_text(case.workload)


def case_text(case: TableSource) -> str:
    """With its key only where the table has several."""
    name = short_name(case.name)
    return name if len(case.table.workloads) == 1 else f"{name} {key_text(case)}".rstrip()


def case_labels(cases: Sequence[TableSource]) -> tuple[str, list[str]]:
    """What all have in common, and what tells each from the others: of one table `M=64`, of several
    `gemm-H200 M=64`."""
    names = list(dict.fromkeys(case.name for case in cases))
    if len(names) > 1:
        return f"{len(names)} tables", [case_text(case) for case in cases]
    name = short_name(names[0])
    if len(cases) == 1:
        return case_text(cases[0]), [case_text(cases[0])]
    return name, [_told_apart(case, cases) for case in cases]


def _told_apart(case: TableSource, cases: Sequence[TableSource]) -> str:
    key = case.workload.key
    varied = [n for n in key if len({repr(one.workload.key.get(n)) for one in cases}) > 1]
    return " ".join(f"{name}={key[name]}" for name in varied)


def processes(jobs: int | None) -> int:
    from whet.engine.settings import usable_cores

    return jobs or usable_cores()
