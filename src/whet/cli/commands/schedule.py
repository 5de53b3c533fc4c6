"""`whet schedule`: what the steps of a schedule do."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.arguments.locate import locate
from whet.cli.arguments.options import BUDGETS, JsonOption, StoreOption, argument, option, resolved
from whet.cli.terminal.help import refuse_others
from whet.cli.terminal.output import ns_text, page, print_json, wrap
from whet.core.errors import UsageError, did_you_mean
from whet.store import ir_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whet.core.config import Config
    from whet.targets.schedule.comparing import ComparedSchedule
    from whet.targets.schedule.payloads import Payload
    from whet.targets.schedule.target import ScheduleStep, ScheduleTarget

# So many stand beside each other on the page.
_SHOWN = 3


def schedule(
    context: typer.Context,
    what: Annotated[
        list[str],
        argument(
            "FILE.py:NAME",
            "NAME is a whet.schedule(…); or SCRIPT.mlir, which needs --payload. Two or more are "
            "compared; ':NAME' is one of the same file.",
        ),
    ],
    payload: Annotated[
        str | None,
        option(
            "--payload PAYLOAD", "What SCRIPT.mlir is applied to: 'matmul(64, 64, 64)' or a file."
        ),
    ] = None,
    suggest: Annotated[
        bool,
        option(
            "--suggest",
            "Say which loops may be tiled, reordered, parallelized and fused.",
            "one schedule",
        ),
    ] = False,
    sketch: Annotated[
        bool,
        option(
            "--sketch",
            "Print a script derived from the loops of its payload, to keep and change; WHAT may be "
            "a payload, as for --payload.",
            "one schedule",
        ),
    ] = False,
    step: Annotated[
        int | None,
        option("--step N", "Print the IR after step N; 0 is the payload.", "one schedule"),
    ] = None,
    diff: Annotated[
        tuple[int, int] | None,
        option("--diff N M", "Print what changes from step N to step M.", "one schedule"),
    ] = None,
    values: Annotated[
        list[str] | None,
        option(
            "--set NAME=VALUE",
            "A value other than the first config's (repeatable).",
            "one schedule",
        ),
    ] = None,
    explore: Annotated[
        bool,
        option("--explore", "Then show them side by side in the browser.", "several schedules"),
    ] = False,
    budget: Annotated[
        str | None, option("--budget BUDGET", BUDGETS, panel="several schedules")
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Look at the schedule of an MLIR program, or compare several.

    Of one, lists its steps, or prints the IR between them. Several are tuned, the best of each is
    measured in turns, and what it amounts to is said.

    Examples:
      whet schedule kernel.py:matmul             list the steps
      whet schedule kernel.py:matmul --step 5    the IR after step 5
      whet schedule kernel.py:matmul --diff 4 5  what step 5 changes
      whet schedule kernel.py:matmul --set ti=16 --set order=columns
      whet schedule mine.mlir --payload 'matmul(64, 64, 64)'
      whet schedule kernel.py:matmul --suggest   what is legal for each operation
      whet schedule payload.mlir --sketch > mine.mlir
      whet schedule kernel.py:tiled :fused       compare two of one file
      whet schedule kernel.py:mine other.py:mine --budget 30s
      whet schedule kernel.py:a :b --explore     look at them in the browser
    """
    refuse_others(context, "one schedule" if len(what) == 1 else "several schedules")
    if len(what) > 1:
        _compare(what, payload, explore, budget, store, json)
    elif suggest:
        _suggest(what[0], json)
    elif sketch:
        _sketch(what[0])
    else:
        _show(what[0], payload, step, diff, values or (), json)


def _show(
    what: str,
    payload: str | None,
    step: int | None,
    diff: tuple[int, int] | None,
    values: Sequence[str],
    json: bool,
) -> None:
    from whet.targets.schedule.target import diff_of, step_at

    if step is not None and diff is not None:
        raise UsageError("give --step or --diff, not both")
    target = located_schedule(what) if payload is None else scripted(what, payload)
    config = _config(target, values)
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


def _suggest(what: str, json: bool) -> None:
    from whet.targets.schedule.analysis import dependences_of

    found = dependences_of(located_schedule(what).payload.text)
    if json:
        print_json({"v": 1, "operations": [asdict(one) for one in found]})
    else:
        print("\n".join(line for one in found for line in one.lines))


def _sketch(what: str) -> None:
    from whet.targets.schedule.sketches import sketch

    is_python = ".py:" in what or what.endswith(".py")
    print(sketch(located_schedule(what).payload if is_python else payload_of(what)), end="")


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
    from whet.targets.schedule.target import schedule

    return schedule(payload_of(payload), Path(script).absolute(), name=name)


def payload_of(text: str) -> Payload:
    from whet.targets.schedule import payloads
    from whet.targets.schedule.payload_file import payload_file
    from whet.targets.schedule.payloads import BODIES

    if text.endswith(".mlir"):
        return payload_file(Path(text).absolute())
    kind, _, rest = text.partition("(")
    sizes = [one.strip() for one in rest.removesuffix(")").split(",")]
    if kind not in BODIES:
        raise UsageError(f"--payload {text}: no payload '{kind}'{did_you_mean(kind, BODIES)}")
    try:
        made: Payload = getattr(payloads, kind)(*map(int, sizes))
    except (TypeError, ValueError):
        raise UsageError(
            f"--payload {text}: give its sizes as numbers, such as 'matmul(64, 64, 64)'"
        ) from None
    return made


def located_schedule(what: str) -> ScheduleTarget:
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


def _compare(
    what: Sequence[str],
    payload: str | None,
    explore: bool,
    budget: str | None,
    store: str | None,
    json: bool,
) -> None:
    from whet.targets.schedule.comparing import compared

    settings = resolved(budget=budget, store=store).settings
    if explore:
        from whet.cli.commands.explore import check_installed

        check_installed()
        if ir_folder(settings.store) is None:
            raise UsageError("this store cannot keep programs to look at; use one that is a file")
    rows = compared([_located(one, payload) for one in _completed(what)], settings)
    if json:
        print_json({"v": 1, "schedules": [vars(one) for one in rows]})
    else:
        _print(rows, _labels(what, rows))
    link = _link(rows)
    if explore:
        _explore(store, link)
    elif link and not json:
        from whet.cli.commands.explore import DEFAULT_PORT, LOCAL

        of = "" if store is None else f" --store {shlex.quote(store)}"
        print(f"\nto see them side by side, add --explore, or run 'whet explore{of}' and open")
        print(f"http://{LOCAL}:{DEFAULT_PORT}/{link}")


def _completed(texts: Sequence[str]) -> list[str]:
    """`a.py:x :y` is `a.py:x a.py:y`."""
    made: list[str] = []
    for text in texts:
        if text.startswith(":") and not made:
            raise UsageError(f"'{text}' names no file; give FILE.py:NAME first")
        file = made[-1].rpartition(":")[0] if text.startswith(":") else ""
        made.append(file + text)
    return made


def _located(what: str, payload: str | None) -> ScheduleTarget:
    if not what.endswith(".mlir"):
        return located_schedule(what)
    if payload is None:
        raise UsageError(f"{what}: say what it is applied to with --payload")
    return scripted(what, payload, name=Path(what).stem)


def _labels(texts: Sequence[str], rows: Sequence[ComparedSchedule]) -> list[str]:
    """Their names; what was typed where two have the same name."""
    counts = Counter(one.name for one in rows)
    return [
        one.name if counts[one.name] == 1 else text
        for one, text in zip(rows, _completed(texts), strict=True)
    ]


def _print(rows: Sequence[ComparedSchedule], labels: Sequence[str]) -> None:
    slowest = max(one.median_ns for one in rows)
    width = max(map(len, labels))
    for label, one in zip(labels, rows, strict=True):
        times = slowest / one.median_ns
        print(f"{label:<{width}}  {ns_text(one.median_ns):>8}  {times:6.2f}×  {one.config}")
        for line in wrap(one.insight, page() - width - 2):
            print(" " * (width + 2) + line)


def _link(rows: Sequence[ComparedSchedule]) -> str:
    """Where the page has them, as far as the store could keep their programs."""
    kept = [one.workload for one in rows if one.kept]
    shown = list(dict.fromkeys(kept))[:_SHOWN]
    if len(shown) < 2:
        return ""
    return "#compare?" + "&".join(f"{name}={id}" for name, id in zip("wbc", shown, strict=False))


def _explore(store: str | None, link: str) -> None:
    from whet.cli.commands.explore import library_of, serve_library

    serve_library(library_of(store), link=link)
