"""`whet schedule`: what the steps of a schedule do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.arguments.options import JsonOption
from whet.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whet.core.config import Config
    from whet.targets.schedule.target import ScheduleStep, ScheduleTarget

PayloadOption = Annotated[
    str | None,
    typer.Option(
        "--payload",
        metavar="PAYLOAD",
        help="What SCRIPT.mlir is applied to: 'matmul(64, 64, 64)' or a file.",
    ),
]

ABOUT = "Look at the schedule of an MLIR program."
EXAMPLES = """\b
Examples:
  whet schedule suggest kernel.py:matmul
  whet schedule show kernel.py:matmul
  whet schedule compare kernel.py:tiled :fused
"""
SUGGEST_EXAMPLES = """\b
Examples:
  whet schedule suggest kernel.py:matmul      what is legal for each operation
  whet schedule suggest kernel.py:matmul --json
"""
SHOW_EXAMPLES = """\b
Examples:
  whet schedule show kernel.py:matmul             list the steps
  whet schedule show kernel.py:matmul --step 5    the IR after step 5
  whet schedule show kernel.py:matmul --diff 4 5  what step 5 changes
  whet schedule show kernel.py:matmul --set ti=16 --set order=columns
  whet schedule show mine.mlir --payload 'matmul(64, 64, 64)'
"""


def show(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:NAME|SCRIPT.mlir",
            help="NAME is a whet.schedule(…); a script alone needs --payload.",
        ),
    ],
    payload: PayloadOption = None,
    step: Annotated[
        int | None,
        typer.Option("--step", metavar="N", help="Print the IR after step N; 0 is the payload."),
    ] = None,
    diff: Annotated[
        tuple[int, int] | None,
        typer.Option("--diff", metavar="N M", help="Print what changes from step N to step M."),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A value other than the first config's (repeatable).",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show the IR between the steps of a schedule."""
    from whet.cli.terminal.output import print_json
    from whet.targets.schedule.target import diff_of, step_at

    if step is not None and diff is not None:
        raise UsageError("give --step or --diff, not both")
    target = located_schedule(what) if payload is None else scripted(what, payload)
    config = _config(target, values or ())
    steps = target.steps(config)
    if json:
        print_json({"v": 1, "config": dict(config), "steps": [vars(one) for one in steps]})
    elif step is not None:
        print(step_at(steps, step).ir.rstrip())
    elif diff is not None:
        before, after = (step_at(steps, number) for number in diff)
        print("\n".join(diff_of(before, after)) or "the same IR")
    else:
        _list(config, steps)


def suggest(
    what: Annotated[
        str, typer.Argument(metavar="FILE.py:NAME", help="NAME is a whet.schedule(…).")
    ],
    json: JsonOption = False,
) -> None:
    """Say which loops of a program may be tiled, reordered, parallelized and fused."""
    from dataclasses import asdict

    from whet.cli.terminal.output import print_json
    from whet.targets.schedule.analysis import dependences_of

    found = dependences_of(located_schedule(what).payload.text)
    if json:
        print_json({"v": 1, "operations": [asdict(one) for one in found]})
    else:
        print("\n".join(line for one in found for line in one.lines))


def _list(config: Config, steps: Sequence[ScheduleStep]) -> None:
    from whet.targets.schedule.target import diff_of

    print(f"config  {config}")
    for before, one in zip((steps[0], *steps), steps, strict=False):
        lines = [line for line in diff_of(before, one)[2:] if line[0] in "+-"]
        changed = f"  {len(lines)} lines" if lines else ""
        print(f"{one.number:>4}  {one.operation or 'the payload'}  {one.place}{changed}")
    if steps[-1].problem:
        raise UsageError(f"step {steps[-1].number} cannot be applied: {steps[-1].problem}")


def scripted(script: str, payload: str, name: str | None = None) -> ScheduleTarget:
    """A script alone, for what `--payload` says."""
    from pathlib import Path

    from whet.targets.schedule import payloads
    from whet.targets.schedule.payload_file import payload_file
    from whet.targets.schedule.payloads import BODIES
    from whet.targets.schedule.target import schedule

    if payload.endswith(".mlir"):
        read = payload_file(Path(payload).absolute())
        return schedule(read, Path(script).absolute(), name=name)
    kind, _, rest = payload.partition("(")
    sizes = [one.strip() for one in rest.removesuffix(")").split(",")]
    if kind not in BODIES:
        raise UsageError(f"--payload {payload}: no payload '{kind}'{did_you_mean(kind, BODIES)}")
    try:
        made = getattr(payloads, kind)(*map(int, sizes))
    except (TypeError, ValueError):
        raise UsageError(
            f"--payload {payload}: give its sizes as numbers, such as 'matmul(64, 64, 64)'"
        ) from None
    return schedule(made, Path(script).absolute(), name=name)


def located_schedule(what: str) -> ScheduleTarget:
    from whet.cli.arguments.locate import locate
    from whet.targets.schedule.target import ScheduleTarget

    found = locate(what)
    if not isinstance(found, ScheduleTarget):
        raise UsageError(f"{what} is no whet.schedule(…), so it has no steps")
    return found


def _config(target: ScheduleTarget, texts: Sequence[str]) -> Config:
    config = target.space.first
    if config is None:
        raise UsageError(f"no config of '{target.name}' meets the constraints")
    known = {
        one.name: {str(value): value for value in one.values} for one in target.space.parameters
    }
    for text in texts:
        name, _, value = text.partition("=")
        if name not in known:
            raise UsageError(f"--set {text}: no parameter '{name}'{did_you_mean(name, known)}")
        if value not in known[name]:
            raise UsageError(
                f"--set {text}: not one of its values{did_you_mean(value, known[name])}"
            )
        config = config.replace(**{name: known[name][value]})
    return config
