"""`whet lab`: what can be learnt from recorded tables, and how they are recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

from whet.cli.arguments.options import JsonOption, TransferOption, argument, option
from whet.cli.arguments.reading import chosen, open_known
from whet.cli.terminal.output import bytes_text, count_text, print_lines, say
from whet.core.errors import UsageError
from whet.engine.settings import usable_cores

if TYPE_CHECKING:
    from whet.core.space import Space
    from whet.learn.prior import Prior
    from whet.replay import Table
    from whet.replay.lab import Case, TableSource


TablesArgument = Annotated[
    list[str],
    argument(
        "TABLE",
        "Tables in whet's own format, Kernel Tuner caches or T4 files; or names of shipped tables.",
    ),
]
RepeatsOption = Annotated[int, option("--repeats N", "Tuning runs per strategy and table.", min=1)]
StudySeedOption = Annotated[int, option("--seed N", "Seed of the first repeat.", min=0)]
WorkloadsOption = Annotated[
    int | None,
    option(
        "--workloads N",
        "Use only N evenly spread workloads of a larger table (default: all).",
        min=1,
    ),
]
ProcessesOption = Annotated[
    int | None, option("--jobs N", "Parallel tuning runs (default: usable cores).", min=1)
]


def searches(
    tables: TablesArgument,
    search: Annotated[
        str | None, option("--search NAME,…", "Compare only these strategies (default: all).")
    ] = None,
    evals: Annotated[int, option("--evals N", "Limit on evaluations.", min=2)] = 200,
    repeats: RepeatsOption = 20,
    seed: StudySeedOption = 0,
    transfer: TransferOption = None,
    workloads: WorkloadsOption = None,
    jobs: ProcessesOption = None,
    out: Annotated[
        str | None, option("--out NAME", "Write NAME.json, NAME-evaluations.svg and NAME-time.svg.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare strategies by score on recorded tables.

    A score of 0 is random search and 1 is the optimum, averaged from the first evaluation to the
    point where random search has covered 95 % of the way from the median config to the optimum.
    Random search is calculated for the strategy 'random', failing configs included; until a
    strategy finds something faster, it is credited with the median config. The last sentence says
    what to use and how certain that is: four times the --repeats halve the ±. 'random' is quick
    and varies most, so it is repeated ten times as often.

    Examples:
      whet lab searches h200-gemm-576 --workloads 2
      whet lab searches mine/*.gz --search auto,gp,random --repeats 50
      whet lab searches mine/*.gz --out study/searches
    """
    from whet.cli.commands.lab_searches import compare_searches

    compare_searches(tables, search, evals, repeats, seed, transfer, workloads, jobs, out, json)


def replay(
    tables: TablesArgument,
    search: Annotated[str, option("--search NAME,…", "Strategies to replay.")] = "auto",
    evals: Annotated[
        str | None,
        option("--evals N,…", "Report after these numbers of evaluations (default: 10,25,50,100)."),
    ] = None,
    top: Annotated[
        str | None,
        option("--top P%", "Report how many repeats tried one of the fastest P % of all configs."),
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

    Examples:
      whet lab replay h200-gemm-576 --workloads 4
      whet lab replay mine/*.gz --search auto,random --evals 10,25,50,100
      whet lab replay h200-gemm-576 --search random --top 5% --workloads 1
      whet lab replay mine/new.gz --transfer mine/old.gz mine/older.gz
      whet lab replay mine/*.gz --json | jq '.tables[] | [.table, .found["25"]]'
    """
    from whet.cli.commands.lab_replay import replay_tables

    replay_tables(tables, search, evals, top, repeats, seed, transfer, workloads, jobs, json)


def pareto(
    table: Annotated[
        str, argument("TABLE", "A recorded table: a path or the name of a shipped one.")
    ],
    workload: Annotated[
        str | None,
        option(
            "--workload NAME=VALUE,…",
            "The workload to use (default: M=4096,N=256,K=4096 if present, else the first).",
        ),
    ] = None,
    all_workloads: Annotated[
        bool, option("--all-workloads", "Use a different workload for every draw.")
    ] = False,
    search: Annotated[str, option("--search NAME,…", "Strategies to add, or 'none'.")] = "auto",
    draws: Annotated[int, option("--draws N", "Number of hyper-parameter draws.", min=2)] = 500,
    runs: Annotated[int, option("--runs N", "Tuning runs per draw.", min=4)] = 30,
    compile_factor: Annotated[
        int, option("--compile-factor N", "Number of parallel builds.", min=1)
    ] = 16,
    flops: Annotated[
        str | None,
        option("--flops EXPR", "Operations per execution, such as '2*M*N*K', for TFLOPS."),
    ] = None,
    seed: StudySeedOption = 0,
    jobs: ProcessesOption = None,
    out: Annotated[str | None, option("--out NAME", "Write NAME.svg and NAME.html.")] = None,
    json: JsonOption = False,
) -> None:
    """Simulate the trade-off between tuning time and speed.

    Repeats section 5.3.2 of the paper on Triton's tuning cost: random configs, executed for 10 to
    100 ms each; then with parallel compilation and early stopping. Adds racing, whet's strategies,
    and transfer from other workloads.

    Examples:
      whet lab pareto h200-gemm-paper
      whet lab pareto h200-gemm-paper --workload M=1024,N=1024,K=1024
      whet lab pareto h200-gemm-paper --all-workloads --out study/frontier
      whet lab pareto h200-gemm-paper --json | jq -r '.verdicts[]'
    """
    from whet.cli.commands.lab_pareto import simulate
    from whet.replay.pareto import Draws

    plan = Draws(draws=draws, runs=runs, compile_factor=compile_factor, seed=seed)
    simulate(table, workload, all_workloads, search, plan, flops, jobs, out, json)


def record(
    names: Annotated[
        list[str],
        argument(
            "NAME|ID",
            "A kernel name (or FILE.py:NAME) for all its workloads, or the start of a workload id.",
        ),
    ],
    out: Annotated[str, option("--out FILE", "Output file: NAME.whet.json.gz.")],
    store: Annotated[
        list[str] | None,
        option(
            "--store PATH", "Where results are stored; if repeated, each store is a separate visit."
        ),
    ] = None,
) -> None:
    """Write stored measurements to a table for 'whet lab replay'.

    The table holds every trial, failures included, with its samples and build time. All trials
    must be for one kernel, one toolchain and one device.

    Examples:
      whet tune kernel.py:matmul --search grid    measure every config first
      whet lab record matmul --out matmul-H200.whet.json.gz
      whet lab record 3fa2 91bc --out two.whet.json.gz      two workloads, by id
      whet lab record matmul --store a.db --store b.db --out both.whet.json.gz
    """
    from whet.replay import table_from_stores, write_table
    from whet.replay.files import SUFFIX, table_bytes

    if not out.endswith(SUFFIX):
        raise UsageError(f"--out {out} must end in {SUFFIX}")
    places: list[str | None] = [*store] if store else [None]
    with ExitStack() as stack:
        opened = [stack.enter_context(open_known(one, bundle=False)) for one in places]
        workloads = {
            one.workload.id: one.workload
            for known in opened
            for name in names
            for one in chosen(known, name)
        }
        table = table_from_stores(opened, workloads=list(workloads.values()))
    write_table(table, out)
    size = bytes_text(len(table_bytes(table)))
    parts = [count_text(len(table.configs), "config"), count_text(len(table.workloads), "workload")]
    print_lines([f"{out}: {table.kernel} on {table.device.name}, {' × '.join(parts)}, {size}"])
    untried = sum(
        table.status(one, at) is None for one in table.workloads for at in range(len(table.configs))
    )
    if untried:
        print(
            f"whet: note: {count_text(untried, 'pair')} of config and workload never tried; "
            "'whet tune --search grid' tries all",
            file=sys.stderr,
        )


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
    return jobs or usable_cores()
