"""`whet demo`: the whole job, on the machine at hand."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import (
    JobsOption,
    JsonOption,
    QuietOption,
    SeedOption,
    StoreOption,
    resolved,
)
from whet.core.errors import WhetError

if TYPE_CHECKING:
    from whet.core.run import Result
    from whet.core.space import Space
    from whet.engine.target import Target

EXAMPLES = """\b
Examples:
  whet demo                    768 × 768, under a minute
  whet demo --n 256            a smaller product, quicker
  whet demo --store :memory:   afresh, and leaves nothing behind
"""

DEFAULT_BUDGET = "45s"


def demo(
    n: Annotated[int, typer.Option("--n", metavar="N", min=16, help="Rows and columns.")] = 768,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", metavar="BUDGET", help=f"When to stop (default: {DEFAULT_BUDGET})."
        ),
    ] = None,
    seed: SeedOption = None,
    jobs: JobsOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Tune a matrix product in C on this machine."""
    from whet.cli.locate import load_module
    from whet.cli.output import print_json, print_lines
    from whet.cli.reading import store_place
    from whet.cli.tune import INTERRUPTED, nothing_yet, run_tuning
    from whet.core.budget import Budget

    found = resolved(budget=budget, seed=seed, jobs=jobs, store=store)
    settings = found.settings
    if found.sources["budget"].kind == "default":
        settings = replace(settings, budget=Budget.parse(DEFAULT_BUDGET))
    with redirect_stdout(sys.stderr):
        example = load_module(example_file())
        target: Target = example.product(n)
    if not json:
        print_lines([*_opening(n, target), ""])
        sys.stdout.flush()
    before: float = example.numpy_seconds(n)
    result, interrupted = run_tuning(target, settings, quiet=quiet)
    if result is None:
        print_json(nothing_yet(target)) if json else print("interrupted, nothing measured yet")
    else:
        # On a busy machine NumPy gets the better of two occasions: the claim is ours to prove.
        others = Others(min(before, example.numpy_seconds(n)), _plain_seconds(example.plain(n)))
        if json:
            print_json({**result.to_json(), "demo": _numbers(result, n, others)})
        else:
            print_lines(_closing(result, n, others, store_place(settings.store), store))
    if interrupted:
        raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True)
class Others:
    """Seconds of what the tuned kernel is held against: NumPy, and the plain loop in C."""

    numpy_s: float
    plain_s: float


def _plain_seconds(target: Target) -> float:
    from whet.engine import Plan, tune

    result = tune(target, store=":memory:", plan=Plan.fixed(7), jobs=1)
    return (result.best.median_ns or math.inf) / 1e9


def example_file() -> Path:
    """The example as it was installed with the package, or as it lies in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for root in (package, package.parents[1]):
        path = root / "examples" / "matmul" / "matmul.py"
        if path.is_file():
            return path
    raise WhetError("the example examples/matmul/matmul.py is missing; reinstall whet")


def _gflops(n: int, seconds: float) -> float:
    return 2 * n**3 / seconds / 1e9


def _numbers(result: Result, n: int, others: Others) -> dict[str, float | int | None]:
    best, first = result.best.median_ns, result.first.median_ns if result.first else None
    return {
        "n": n,
        "best_gflops": None if best is None else _gflops(n, best / 1e9),
        "first_gflops": None if first is None else _gflops(n, first / 1e9),
        "plain_gflops": _gflops(n, others.plain_s),
        "numpy_gflops": _gflops(n, others.numpy_s),
        "percent_of_numpy": None if best is None else 100e9 * others.numpy_s / best,
    }


def _opening(n: int, target: Target) -> list[str]:
    from whet.cli.output import page, wrap

    device = target.workload().device.name
    title = f"A blocked matrix product in C, {n} × {n} × {n}, on {device}"
    return [*wrap(title, page(), indent=2), "", *_space_lines(target.space)]


def _space_lines(space: Space) -> list[str]:
    from whet.cli.output import fields, page

    combinations = 1
    for parameter in space.parameters:
        combinations *= len(parameter.values)
    rows = {
        parameter.name: ", ".join(str(value) or "''" for value in parameter.values)
        for parameter in space.parameters
    }
    valid = "?" if space.count is None else f"{space.count:,}"
    title = f"space    {valid} valid configs out of {combinations:,} combinations"
    margin = max(7, *(len(name) + 2 for name in rows))
    return [title, *(f"  {line}" for line in fields(rows, page() - 2, margin))]


def _closing(result: Result, n: int, others: Others, location: str, store: str | None) -> list[str]:
    from whet.cli.output import fields, page
    from whet.cli.summary import (
        equals_text,
        failures,
        first_text,
        interruption,
        ledger,
        timing_text,
        trials_text,
        whereabouts,
    )

    width = page()
    parts: dict[str, str | Sequence[str]] = {"best": [str(result.config), timing_text(result.best)]}
    if result.equals:
        parts["equal"] = equals_text(result)
    if result.first is not None:
        parts["first"] = [str(result.first.config), first_text(result)]
    parts["trials"] = trials_text(result)
    parts["check"] = "passed: the best config's product is NumPy's, to rounding"
    lines = [*interruption(result), *_speeds(result, n, others, width), "", *fields(parts, width)]
    lines += failures(result.trials, width)
    lines += ["", *ledger(result, width)]
    more = ["whet tune FILE.py:NAME      a kernel of yours; see the README"]
    if result.source == "stored":
        more.append("whet demo --store :memory:  to see it tuned afresh")
    return [*lines, "", *whereabouts(result, location, store, more)]


def _speeds(result: Result, n: int, others: Others, width: int) -> list[str]:
    """Bars of speed: the plain loop, the author's first config, the best one, and NumPy."""
    from whet.cli.output import bar_text, shorten, three_digits, times_text

    numbers = _numbers(result, n, others)
    against_first = "" if result.speedup is None else f"{times_text(result.speedup)} the first, "
    rows = [
        ("plain", numbers["plain_gflops"], "three loops, same compiler flags"),
        ("first", numbers["first_gflops"], "the author's own"),
        (
            "best",
            numbers["best_gflops"],
            f"{against_first}{numbers['percent_of_numpy']:.0f} % of NumPy",
        ),
        ("NumPy", numbers["numpy_gflops"], "one thread"),
    ]
    top = max(speed for _, speed, _ in rows if speed is not None)
    cells = max(4, width - 26 - max(len(remark) for _, _, remark in rows))
    return [
        shorten(
            f"{name:<9}{bar_text(speed / top, cells):<{cells}}"
            f"{three_digits(speed):>6} GFLOP/s  {remark}",
            width,
        )
        for name, speed, remark in rows
        if speed is not None
    ]
