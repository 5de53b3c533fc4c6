"""`whet doctor`: why torch.compile is not faster, and which mode to use."""

from __future__ import annotations

import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption, QuietOption, StoreOption
from whet.cli.terminal.output import say
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.doctor.finding import Diagnosis

EXAMPLES = """\b
Examples:
  whet doctor model.py:make_model             findings, and every mode timed
  whet doctor model.py:make_model --findings  findings only: seconds
  whet doctor model.py:make_model --full      the knobs behind the modes, too
  whet doctor model.py:make_model --training  a step is forward and backward
  whet doctor model.py:make_model --modes default,max-autotune
  whet doctor model.py:make_model --check budget.toml
  whet doctor model.py:make_model --report journey.html
"""


def doctor(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:FUNCTION",
            help="A function without arguments that returns a model and inputs: a tensor, a tuple "
            "of arguments or a dict of keywords, or a list of these for several calls.",
            show_default=False,
        ),
    ],
    findings: Annotated[
        bool, typer.Option("--findings", help="Look for findings only; time no modes.")
    ] = False,
    modes: Annotated[
        str | None,
        typer.Option(
            "--modes", metavar="M,M", help="The modes to time beside eager (default: all four)."
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Time the knobs behind the modes as well, one at a time: backends of matrix "
            "products, coordinate descent, freezing, dynamic shapes.",
        ),
    ] = False,
    training: Annotated[
        bool,
        typer.Option("--training", help="Time the forward and the backward pass, not inference."),
    ] = False,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar="BUDGET.toml",
            help="Exit with 1 if the model exceeds a limit in this file.",
        ),
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="FILE.html",
            help="Write a page that follows the model from Python to machine code.",
        ),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find out why torch.compile is not faster.

    Looks for graph breaks, recompilations, upcasts, copies to the host and inputs that are changed
    in place, and tries remedies on the model. Then times eager and the modes of torch.compile, each
    in a process of its own with empty caches, and recommends one; not to compile is a possible
    recommendation. Timings are stored: --store :memory: measures again.
    """
    from whet.cli.terminal.output import print_json, print_lines
    from whet.cli.text.doctor import over_budget_lines, report_lines
    from whet.doctor.budget import over_budget, read_budget

    limits = None if check is None else read_budget(Path(check))
    wanted = () if findings else _modes(modes)
    if limits is not None and modes is None and not limits.needs_modes:
        wanted = ()
    with redirect_stdout(sys.stderr):  # what the file prints is no result of ours
        say = _silent if quiet else _Progress()
        done = _examined(
            subject,
            training=training,
            modes=wanted,
            full=full,
            store=store,
            report=report,
            progress=say,
        )
    exceeded = [] if limits is None else over_budget(done, limits)
    if json:
        print_json({**done.to_json(), "over_budget": exceeded})
    else:
        print_lines(report_lines(done))
        if limits is not None:
            print_lines(over_budget_lines(exceeded))
    written = report is not None and not done.interrupted and not done.problem
    if written and not quiet:
        print(f"wrote {report}", file=sys.stderr)
    if done.interrupted:
        raise typer.Exit(130)
    if exceeded or done.problem:
        raise typer.Exit(1)


def _modes(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _examined(text: str, **wanted: Any) -> Diagnosis:
    from whet.cli.arguments.locate import file_of, name_in
    from whet.doctor.checkup import doctor_file

    path, name = file_of(text), name_in(text)
    if name is None:
        raise UsageError(f"'{text}' does not say what makes the model; use FILE.py:FUNCTION")
    return doctor_file(path, name, **wanted)


def _silent(text: str) -> None:
    pass


class _Progress:
    """A line for each thing that begins or ends, with the time since the command began."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        spent = f"{time.monotonic() - self._began:.1f}s"
        say(f"{spent:>7}  {text}")
