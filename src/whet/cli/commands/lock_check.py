"""`whet lock check`: entries that do not fit themselves, or the kernels they are about."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption
from whet.cli.commands.lock import lock_path

if TYPE_CHECKING:
    from whet.engine.lockfile.entries import LockEntry, LockFile

EXAMPLES = """\b
Examples:
  whet lock check                       is whet.lock whole?
  whet lock check train.py              does it fit the kernels of train.py?
  whet lock check --module fla.ops      those of a library?
  whet lock check --accept              accept lines that were changed by hand

\b
The exit code is 1 if entries do not fit, and 2 if the file cannot be read.
"""


def check(
    program: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE.py", help="A program whose kernels to look at.", show_default=False
        ),
    ] = None,
    module: Annotated[
        str | None, typer.Option("--module", "-m", metavar="NAME", help="A module to import.")
    ] = None,
    lock: Annotated[
        Path | None,
        typer.Option(
            "--lock", metavar="FILE", help="The lock file (default: $WHET_LOCK, or whet.lock)."
        ),
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Accept lines that were changed by hand.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Find entries that were changed by hand, or that fit no kernel."""
    from whet.cli.arguments.kernels import live_tuners
    from whet.cli.terminal.output import count_text, print_json, print_lines
    from whet.engine.lockfile.text import read_lock, write_lock

    path = lock_path(lock)
    found = read_lock(path, accept=accept)
    if accept:
        write_lock(path, found.entries)
    tuners = live_tuners(program, module) if program or module else []
    problems = _problems(found, tuners) if tuners else []
    if json:
        about = {"choices": len(found.by_id), "digest": found.digest, "problems": problems}
        print_json({"v": 1, "lock": str(path), **about})
    else:
        print_lines(problems)
        count = f"{count_text(len(found.by_id), 'choice')} of " + count_text(
            len(found.by_kernel), "kernel"
        )
        said = count_text(len(problems), "problem") if problems else "no problems"
        print_lines([f"{path}: {count}, digest {found.digest}: {said}"])
    if problems:
        raise typer.Exit(1)


def _problems(lock: LockFile, tuners: list[Any]) -> list[str]:
    """One line for each entry that its kernel would not use, and each kernel without any."""
    from whet.targets.triton.configs import plain_config
    from whet.targets.triton.source import source_of

    kernels: dict[str, list[Any]] = {}
    for tuner in tuners:
        if len(tuner.configs) > 1:
            kernels.setdefault(str(tuner.base_fn.__name__), []).append(tuner)
    lines: list[str] = []
    for name, alike in sorted(kernels.items()):
        entries = lock.by_kernel.get(name)
        if not entries:
            lines.append(f"{name}: the lock file has no entry for this kernel")
            continue
        sources = {source_of(tuner).fingerprint: tuner for tuner in alike}
        offered = {
            source: {plain_config(one) for one in tuner.configs}
            for source, tuner in sources.items()
        }
        lines += [text for one in entries if (text := _unusable(one, offered))]
    return lines


def _unusable(entry: LockEntry, offered: dict[str, set[Any]]) -> str:
    if entry.fingerprint not in offered:
        return f"{entry}: for another source ({entry.fingerprint})"
    if entry.config not in offered[entry.fingerprint]:
        return f"{entry}: [{entry.config}] is not one of the kernel's configs"
    return ""
