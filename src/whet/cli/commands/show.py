"""`whet show`: a kernel's passport and one of its workloads at a glance, in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption, StoreOption, TableOption

if TYPE_CHECKING:
    from whet.cli.arguments.looking import LookedAt

EXAMPLES = """\b
Examples:
  whet show                 the most recent workload
  whet show matmul          what is known of a kernel, and its last workload
  whet show fla.ops.gla.chunk:chunk_gla_fwd_kernel_o
  whet show 3fa29c1b        one workload
  whet show --table h200-gemm-576
"""


def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="KERNEL|ID",
            help="A kernel: its name, the name it was tuned under, FILE.py:NAME or MODULE:NAME; "
            "or the start of a workload id (default: the most recent workload).",
            show_default=False,
        ),
    ] = None,
    table: TableOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show what is known of a kernel or a workload.

    Of a kernel: its source, where it was met, keys, what Triton compiles it for, the policy that
    applies, picks and costs. Of a workload: its best, failures, space and search. 'whet explore'
    shows workloads in the browser.
    """
    from whet.cli.arguments.looking import looked_at
    from whet.cli.arguments.passports import passports
    from whet.cli.terminal.output import page, print_json, print_lines
    from whet.cli.text.passport import passport_lines
    from whet.core.errors import WhetError

    about = passports(name, store) if name is not None and table is None else []
    found: LookedAt | None = None
    for text in (name, *(one.kernel for one in about)):
        try:
            found = looked_at(text, store, table)
            break
        except WhetError:  # a kernel that was only met has no workload, nor has one by its module
            if not about:
                raise
    if json:
        print_json({"v": 1, **_as_json(found), "kernels": [one.to_json() for one in about]})
        return
    for one in about:
        print_lines([*passport_lines(one, page()), *([""] if found is not None else [])])
    if found is not None:
        _draw(found)


def _as_json(found: LookedAt | None) -> dict[str, Any]:
    from whet.explorer.importance import importance

    if found is None:
        return {"workload": None, "importance": []}
    trials = found.subject.read().columns
    return {"workload": found.subject.summary(), "importance": importance(trials)}


def _draw(found: LookedAt) -> None:
    from whet.cli.terminal.output import print_lines
    from whet.cli.text.drawings import show_lines

    print_lines([*found.title, ""])
    for line in show_lines(found.subject, found.subject.summary()):
        print(line)
    print_lines(found.further)
