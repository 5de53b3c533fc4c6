"""`whet warmup`: tunes every Triton kernel that a function launches."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

from whet.cli.arguments.devices import DevicesOption
from whet.cli.arguments.locate import file_of, install_whet, name_in, required_of
from whet.cli.arguments.options import (
    EffortOption,
    JobsOption,
    JsonOption,
    L2BytesOption,
    L2Option,
    QuietOption,
    StoreOption,
    argument,
    option,
    pass_on,
)
from whet.cli.terminal.output import (
    count_text,
    flexible,
    page,
    print_json,
    print_lines,
    right,
    say,
    seconds_text,
    table,
    wrap,
)
from whet.core.errors import UsageError, did_you_mean
from whet.core.mode import checked_effort
from whet.targets.files import load_module

if TYPE_CHECKING:
    from whet.targets.triton.warming.warmup import WarmedKernel, Warmup


def warmup(
    step: Annotated[
        str, argument("FILE.py:STEP", "A function without arguments. It is called several times.")
    ],
    budget: Annotated[
        str | None, option("--budget TIME", "When to stop, such as 60s or 5m.")
    ] = None,
    effort: EffortOption = None,
    keep: Annotated[
        bool,
        option(
            "--no-restore",
            "Leave parameters, optimizers and random generators as the calls left them.",
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

    Examples:
      whet warmup train.py:step               tune all kernels of step()
      whet warmup train.py:step --budget 60s  stop after a minute
      whet warmup serve.py:request --json     print what was tuned as JSON
    """
    pass_on(store, jobs=jobs, l2=l2, l2_bytes=l2_bytes)
    with redirect_stdout(sys.stderr):  # what the file prints is no result of ours
        call = _step(step)
        from whet.targets.triton.warming.warmup import warmup as warm_up

        progress = (lambda _: None) if quiet else _progress
        chosen = None if effort is None else checked_effort(effort)
        done = warm_up(
            call, budget=budget, effort=chosen, restore=not keep, progress=progress, devices=devices
        )
    if as_json:
        print_json(as_data(done))
    else:
        print_lines(report(done))
    return 0 if done.complete else 1


def _progress(text: str) -> None:
    say(f"whet: {text}")


def _step(text: str) -> Callable[[], Any]:
    path, name = file_of(text), name_in(text)
    if name is None:
        raise UsageError(f"'{text}' does not say what to call; use FILE.py:STEP")
    install_whet()
    module = load_module(path)
    found = getattr(module, name, None)
    if found is None:
        functions = [n for n, value in vars(module).items() if inspect.isfunction(value)]
        raise UsageError(f"{path} has no '{name}'{did_you_mean(name, functions)}")
    if not callable(found):
        raise UsageError(f"'{name}' in {path} is not a function")
    needed = required_of(found)
    if needed:
        raise UsageError(
            f"'{name}' in {path} needs arguments ({', '.join(needed)}); name a function without any"
        )
    call: Callable[[], Any] = found
    return call


_LAYOUT = (flexible("kernel"), right("configs"), right("faster"), flexible("config"))


def report(done: Warmup) -> list[str]:
    """A line for each key of each kernel, and what was left."""
    lines = table(_LAYOUT, [_row(one) for one in done.kernels], page()) if done.kernels else []
    for one in done.kernels:
        if one.note:
            lines += wrap(f"not tuned: {one.kernel} ({one.key}): {one.note}", page(), indent=2)
    for note in done.notes:
        lines += wrap(note, page(), indent=2)
    return [*lines, *wrap(_summary(done), page(), indent=2)]


def _row(one: WarmedKernel) -> tuple[str, ...]:
    faster = "–" if one.speedup is None else f"{one.speedup:.2f}×"
    return one.kernel, str(one.configs), faster, "–" if one.config is None else str(one.config)


def _summary(done: Warmup) -> str:
    if not done.kernels:
        return "nothing to tune: the store has a result for every kernel that was launched"
    tuned = sum(one.config is not None for one in done.kernels)
    kernels = count_text(len(done.kernels), "kernel")
    spent, calls = seconds_text(done.seconds), count_text(done.calls, "call")
    return f"{tuned} of {kernels} tuned in {spent}, {calls} of the step"


def as_data(done: Warmup) -> dict[str, Any]:
    return {
        "kernels": [
            {
                "kernel": one.kernel,
                "key": one.key,
                "config": None if one.config is None else dict(one.config),
                "source": one.source,
                "configs": one.configs,
                "speedup": one.speedup,
                "seconds": one.seconds,
                "note": one.note,
            }
            for one in done.kernels
        ],
        "calls": done.calls,
        "seconds": done.seconds,
        "complete": done.complete,
        "notes": list(done.notes),
    }
