"""`whet jit`: the specializations that programs have met, and why two of them differ."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption, StoreOption, resolved
from whet.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from whet.targets.triton.jit.records import Records
    from whet.targets.triton.jit.specialization import Specialization

ABOUT = "Show what Triton compiled for a program, and why."
EXAMPLES = """\b
Examples:
  WHET_JIT=record whet run serve.py     write down what is compiled
  whet jit ls
  whet jit explain 3f2a
  whet pack serve.whet --jit            pack it, for whet.serving.preload
"""
LS_EXAMPLES = """\b
Examples:
  whet jit ls                          all that was recorded
  whet jit ls scale                    of one kernel
  whet jit ls --reachable              also what other arguments would compile
  whet jit ls --bundle serve.whet      what is in a bundle
"""
EXPLAIN_EXAMPLES = """\b
Examples:
  whet jit explain 3f2a                one, argument by argument
  whet jit explain scale               why a kernel has several
"""
DIFF_EXAMPLES = """\b
Examples:
  whet jit diff 3f2a 91cc              why Triton tells the two apart
"""
ADD_EXAMPLES = """\b
Examples:
  whet jit add scale n=1               like one that was recorded, with n = 1
  whet jit add app.kernels:scale x=*bf16 --like 3f2a
"""

BundleOption = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="FILE", help="Read a bundle, not what was recorded here."),
]
KernelArgument = Annotated[
    str | None,
    typer.Argument(metavar="KERNEL", help="Only this kernel.", show_default=False),
]


def ls(
    kernel: KernelArgument = None,
    reachable: Annotated[
        bool,
        typer.Option(
            "--reachable", help="Also list what was never met and other arguments would compile."
        ),
    ] = False,
    most: Annotated[
        int, typer.Option("--most", metavar="N", min=0, help="At most N such a kernel.")
    ] = 8,
    pointers: Annotated[
        bool, typer.Option("--pointers", help="Also change the alignment of pointers.")
    ] = False,
    bundle: BundleOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """List specializations."""
    from whet.cli.terminal.output import print_json, print_lines
    from whet.cli.text.jit import listing
    from whet.targets.triton.jit.variants import reachable as variants

    found = _named(_known(store, bundle), kernel)
    more = variants(found, most=most, pointers=pointers) if reachable else None
    if json:
        rows = [_as_json(one) for one in (*found, *(more.found if more else ()))]
        print_json({"v": 1, "specializations": rows, "left": more.left if more else 0})
        return
    print_lines(listing(found, more))


def explain(
    what: Annotated[
        str, typer.Argument(metavar="ID|KERNEL", help="An id, its start, or a kernel's name.")
    ],
    bundle: BundleOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show what a binary was compiled for, and who needed it."""
    from whet.cli.terminal.output import print_json, print_lines
    from whet.cli.text.jit import explained, kernel_explained

    known = _known(store, bundle)
    by_id = [one for one in known if one.id.startswith(what)]
    found = by_id or _named(known, what)
    if json:
        print_json({"v": 1, "specializations": [_as_json(one) for one in found]})
    elif len(found) == 1:
        print_lines(explained(found[0]))
    else:
        print_lines(kernel_explained(found))


def diff(
    one: Annotated[str, typer.Argument(metavar="ID", help="A specialization.")],
    other: Annotated[str, typer.Argument(metavar="ID", help="Another one.")],
    bundle: BundleOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Say which argument tells two binaries apart."""
    from whet.cli.terminal.output import print_json, print_lines
    from whet.targets.triton.jit.variants import differences

    known = _known(store, bundle)
    first, second = _one(known, one), _one(known, other)
    if first.kernel != second.kernel:
        raise UsageError(
            f"{first.id} is of kernel {first.kernel} and {second.id} of {second.kernel}; "
            "name two of one kernel"
        )
    found = differences(first, second)
    if json:
        print_json({"v": 1, "differences": [vars(difference) for difference in found]})
        return
    lines = [f"{first.kernel}: {first.id} and {second.id}"]
    lines += [f"  {difference}" for difference in found]
    print_lines(lines if found else [*lines, "  nothing differs"])


def add(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="A kernel that was recorded.")],
    changes: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE", help="An argument: n=1, x=*fp16, BLOCK=64."),
    ],
    like: Annotated[
        str | None,
        typer.Option("--like", metavar="ID", help="Change this one (default: the latest)."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Add one that was not met, for 'whet pack --jit'."""
    from whet.cli.terminal.output import print_lines
    from whet.targets.triton.jit.variants import asked_for

    records = _records(store)
    known = records.all()
    met = [one for one in _named(known, kernel) if not one.met.derived] or _named(known, kernel)
    new = asked_for(_one(met, like) if like else met[-1], changes)
    if any(one.id == new.id for one in known):
        print_lines([f"{new.id} of {new.kernel} is recorded already"])
        return
    records.add([new])
    print_lines([f"{new.id} of {new.kernel} added; 'whet pack FILE --jit' compiles and packs it"])


def _records(store: str | None) -> Records:
    from whet.targets.triton.jit.records import Records

    return Records.beside(resolved(store=store).settings.store)


def _known(store: str | None, bundle: Path | None) -> list[Specialization]:
    if bundle is not None:
        from whet.store.bundles.bundle import open_bundle
        from whet.targets.triton.jit.records import specializations_in

        with open_bundle(bundle) as opened:
            return specializations_in(opened)
    records = _records(store)
    found = records.all()
    if not found:
        raise UsageError(
            f"nothing is recorded in {records.folder}; run the program with WHET_JIT=record"
        )
    return found


def _named(known: list[Specialization], kernel: str | None) -> list[Specialization]:
    if kernel is None:
        return known
    found = [one for one in known if kernel in (one.kernel, one.name)]
    if not found:
        names = sorted({one.name for one in known})
        raise UsageError(f"nothing is recorded for '{kernel}'{did_you_mean(kernel, names)}")
    return found


def _one(known: list[Specialization], start: str) -> Specialization:
    found = [one for one in known if one.id.startswith(start)]
    if len(found) != 1:
        what = "no specialization's id starts" if not found else f"{len(found)} ids start"
        raise UsageError(f"{what} with '{start}'; see 'whet jit ls'")
    return found[0]


def _as_json(one: Specialization) -> dict[str, Any]:
    return {"id": one.id, **one.to_json()}
