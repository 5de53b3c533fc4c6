"""`whet tune`: finds the fastest config of a tunable in a file of the user's."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import (
    BudgetOption,
    JobsOption,
    JsonOption,
    QuietOption,
    SearchOption,
    SeedOption,
    StoreOption,
    resolved,
)

if TYPE_CHECKING:
    from whet.core.run import Result
    from whet.engine.settings import Settings
    from whet.engine.target import Target

EXAMPLES = """\b
Examples:
  whet tune kernel.py:blur                the object 'blur' of kernel.py
  whet tune kernel.py                     the only tunable of kernel.py
  whet tune kernel.py:blur --budget 30s   until half a minute is over
  whet tune kernel.py:blur --json | jq .best.config
"""

INTERRUPTED = 130


def tune(
    tunable: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:NAME",
            help="What to tune: a whet.function(…) or whet.native(…) called NAME, or a function "
            "called NAME that returns one. NAME may be left out if the file has only one.",
            show_default=False,
        ),
    ],
    budget: BudgetOption = None,
    seed: SeedOption = None,
    jobs: JobsOption = None,
    store: StoreOption = None,
    search: SearchOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the fastest config of a tunable.

    Builds and measures its configs, drops those that cannot win, settles the rest in a duel, and
    keeps every result. What is known already is not measured again. Ctrl-C prints the best so far.
    """
    from whet.cli.locate import locate
    from whet.cli.output import print_json, print_lines
    from whet.cli.reading import store_place
    from whet.cli.summary import summary

    settings = resolved(budget=budget, seed=seed, jobs=jobs, store=store, search=search).settings
    with redirect_stdout(sys.stderr):  # the file's own prints are not our result
        target = locate(tunable)
    result, interrupted = run_tuning(target, settings, quiet=quiet)
    if json:
        print_json(nothing_yet(target) if result is None else result.to_json())
    elif result is not None:
        print_lines(summary(result, store_place(settings.store), store))
    else:
        print("interrupted before the first config was measured")
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def run_tuning(target: Target, settings: Settings, *, quiet: bool) -> tuple[Result | None, bool]:
    """Tunes with progress on stderr; the result, and whether Ctrl-C ended it.

    A result is None only when Ctrl-C came before anything was measured.
    """
    from whet.cli.progress import progress
    from whet.engine import Interrupted
    from whet.engine import tune as run

    try:
        with redirect_stdout(sys.stderr), progress(target.space.first, quiet=quiet) as on_event:
            return run(target, settings=settings, on_event=on_event), False
    except Interrupted as interrupted:
        return interrupted.result, True
    except KeyboardInterrupt:
        return None, True


def nothing_yet(target: Target) -> dict[str, object]:
    return {
        "v": 1,
        "workload": target.workload().to_json(),
        "outcome": "interrupted",
        "best": None,
        "first": None,
        "trials": 0,
    }
