"""`whet warmup`: tunes every Triton kernel that a function launches."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer

from whet.cli.arguments.devices import DevicesOption
from whet.cli.arguments.environment import pass_on
from whet.cli.arguments.options import (
    EffortOption,
    JobsOption,
    JsonOption,
    L2BytesOption,
    L2Option,
    QuietOption,
    StoreOption,
)
from whet.cli.terminal.output import say
from whet.core.errors import UsageError, did_you_mean, no_triton
from whet.core.mode import checked_effort

EXAMPLES = """\b
Examples:
  whet warmup train.py:step               tune all kernels of step()
  whet warmup train.py:step --budget 60s  stop after a minute
  whet warmup serve.py:request --json     print what was tuned as JSON
"""


def warmup(
    step: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:STEP",
            help="A function without arguments. It is called several times.",
            show_default=False,
        ),
    ],
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="TIME", help="When to stop, such as 60s or 5m."),
    ] = None,
    effort: EffortOption = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--no-restore",
            help="Leave parameters, optimizers and random generators as the calls left them.",
        ),
    ] = False,
    store: StoreOption = None,
    jobs: JobsOption = None,
    l2: L2Option = None,
    l2_bytes: L2BytesOption = None,
    devices: DevicesOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> int:
    """Tune all Triton kernels of a program together.

    STEP is called once to find its kernels, whose configs are then built side by side, and again
    until each kernel is tuned on its own arguments. After each call, parameters, gradients,
    optimizers and random generators are put back.
    """
    from whet.cli.terminal.output import print_json, print_lines
    from whet.cli.text.warmup import as_data, report

    pass_on(store, jobs=jobs, l2=l2, l2_bytes=l2_bytes)
    with redirect_stdout(sys.stderr):  # what the file prints is no result of ours
        call = _step(step)
        from whet.targets.triton.warming.warmup import warmup as warm_up

        progress = (lambda _: None) if quiet else _progress
        chosen = None if effort is None else checked_effort(effort)
        done = warm_up(
            call,
            budget=budget,
            effort=chosen,
            restore=not keep,
            progress=progress,
            devices=devices,
        )
    if as_json:
        print_json(as_data(done))
    else:
        print_lines(report(done))
    return 0 if done.complete else 1


def _progress(text: str) -> None:
    say(f"whet: {text}")


def _step(text: str) -> Callable[[], Any]:
    from whet.cli.arguments.locate import file_of, name_in
    from whet.targets.files import load_module

    path, name = file_of(text), name_in(text)
    if name is None:
        raise UsageError(f"'{text}' does not say what to call; use FILE.py:STEP")
    try:
        from whet.targets.triton.install import install

        install()
    except ImportError as error:
        raise UsageError(no_triton(error) or f"cannot import Triton ({error})") from None
    module = load_module(path)
    found = getattr(module, name, None)
    if found is None:
        functions = [n for n, value in vars(module).items() if inspect.isfunction(value)]
        raise UsageError(f"{path} has no '{name}'{did_you_mean(name, functions)}")
    if not callable(found):
        raise UsageError(f"'{name}' in {path} is not a function")
    needed = _needed(found)
    if needed:
        raise UsageError(
            f"'{name}' in {path} needs arguments ({', '.join(needed)}); name a function without any"
        )
    call: Callable[[], Any] = found
    return call


def _needed(function: Any) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in plain]
