"""`whet jit`: the specializations that programs have met, and why two of them differ."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption, StoreOption, argument, option, resolved
from whet.cli.terminal.help import refuse_others
from whet.cli.terminal.output import (
    Column,
    columns,
    count_text,
    fields,
    flexible,
    page,
    print_json,
    print_lines,
    right,
    seconds_text,
    table,
)
from whet.core.errors import UsageError, did_you_mean
from whet.targets.triton.jit.specialization import CONSTANT, JitArgument, Specialization, shown
from whet.targets.triton.jit.variants import Reachable, by_kernel, differences

if TYPE_CHECKING:
    from whet.targets.triton.jit.records import Records


def jit(
    context: typer.Context,
    what: Annotated[
        str | None,
        argument("ID|KERNEL", "An id, its start, or a kernel's name (default: list all)."),
    ] = None,
    other: Annotated[str | None, argument("ID", "Another one, to compare it with.")] = None,
    kernel: Annotated[
        str | None, option("--kernel KERNEL", "Only this kernel.", "the list")
    ] = None,
    reachable: Annotated[
        bool,
        option(
            "--reachable",
            "Also list what was never met and other arguments would compile.",
            "the list",
        ),
    ] = False,
    most: Annotated[
        int, option("--most N", "At most N such a kernel.", min=0, panel="the list")
    ] = 8,
    pointers: Annotated[
        bool, option("--pointers", "Also change the alignment of pointers.", "the list")
    ] = False,
    add: Annotated[
        list[str] | None,
        option(
            "--add NAME=VALUE…",
            "Add one that was not met, for 'whet pack --jit', with these arguments: n=1, x=*fp16, "
            "BLOCK=64.",
            "a kernel",
        ),
    ] = None,
    like: Annotated[
        str | None,
        option("--like ID", "With --add: change this one (default: the latest).", "a kernel"),
    ] = None,
    bundle: Annotated[
        Path | None, option("--bundle FILE", "Read a bundle, not what was recorded here.")
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show what Triton compiled for a program, and why.

    Lists specializations; or shows what one was compiled for and who needed it, or which argument
    tells two apart.

    Examples:
      WHET_JIT=record whet run serve.py     write down what is compiled
      whet jit                              all that was recorded
      whet jit --kernel scale               of one kernel
      whet jit --reachable                  also what others would compile
      whet jit 3f2a                         one, argument by argument
      whet jit scale                        why a kernel has several
      whet jit 3f2a 91cc                    why Triton tells the two apart
      whet jit scale --add n=1              like one that was recorded, with n = 1
      whet jit app.kernels:scale --add x=*bf16 --like 3f2a
      whet jit --bundle serve.whet          what is in a bundle
      whet pack serve.whet --jit            pack it, for whet.serving.preload
    """
    refuse_others(context, "the list" if what is None else "a kernel")
    if like is not None and not add:
        raise UsageError("--like needs --add")
    if what is None:
        _list(kernel, reachable, most, pointers, bundle, store, json)
    elif add:
        if other is not None or bundle is not None:
            raise UsageError("--add takes one kernel that was recorded here, and no bundle")
        _add(what, add, like, store)
    elif other is None:
        _explain(what, bundle, store, json)
    else:
        _compare(what, other, bundle, store, json)


def _list(
    kernel: str | None,
    reachable: bool,
    most: int,
    pointers: bool,
    bundle: Path | None,
    store: str | None,
    json: bool,
) -> None:
    from whet.targets.triton.jit.variants import reachable as variants

    found = _named(_known(store, bundle), kernel)
    more = variants(found, most=most, pointers=pointers) if reachable else None
    if json:
        rows = [_as_json(one) for one in (*found, *(more.found if more else ()))]
        print_json({"v": 1, "specializations": rows, "left": more.left if more else 0})
        return
    print_lines(listing(found, more))


def _explain(what: str, bundle: Path | None, store: str | None, json: bool) -> None:
    known = _known(store, bundle)
    by_id = [one for one in known if one.id.startswith(what)]
    found = by_id or _named(known, what)
    if json:
        print_json({"v": 1, "specializations": [_as_json(one) for one in found]})
    elif len(found) == 1:
        print_lines(explained(found[0]))
    else:
        print_lines(kernel_explained(found))


def _compare(one: str, other: str, bundle: Path | None, store: str | None, json: bool) -> None:
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


def _add(kernel: str, changes: list[str], like: str | None, store: str | None) -> None:
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
        raise UsageError(f"{what} with '{start}'; see 'whet jit'")
    return found[0]


def _as_json(one: Specialization) -> dict[str, Any]:
    return {"id": one.id, **one.to_json()}


def listing(found: Sequence[Specialization], more: Reachable | None) -> list[str]:
    """One line each; what all of a kernel have in common is left out."""
    reachable = more.found if more else ()
    layout = [
        Column("id"),
        flexible("kernel"),
        flexible("special"),
        right("took"),
        Column("status"),
    ]
    rows = []
    for group in by_kernel((*found, *reachable)).values():
        varied = _varied(group)
        for one in group:
            spent = "–" if one.met.derived else seconds_text(one.met.seconds)
            rows.append((one.id, one.name, _special(one, varied), spent, _status(one)))
    kernels = len({one.kernel for one in found})
    summary = f"{count_text(len(found), 'specialization')} of {count_text(kernels, 'kernel')}"
    if more is not None:
        summary += f", {len(more.found):,} more reachable"
        summary += f" ({more.left:,} left out; see --most)" if more.left else ""
    return [*table(layout, rows, columns()), "", summary]


def _status(one: Specialization) -> str:
    if one.why:
        return "not packable"
    if one.met.tuning:
        return "measured only"
    if one.met.derived:
        return "compiled" if one.binary else "not met"
    return "recorded"


def explained(one: Specialization) -> list[str]:
    about = {
        "kernel": one.kernel,
        "defined": one.place,
        "target": " ".join(map(str, one.target[:2])) + f", Triton {one.triton}",
        "options": [f"{name} = {shown(value)}" for name, value in one.options] or "none",
        "first met": _met(one),
        "binary": one.binary or f"none: {one.why or 'not compiled yet'}",
    }
    layout = [Column("argument"), flexible("compiled for"), Column("met with")]
    rows = [(a.name, _compiled_for(a), _value(a)) for a in one.arguments]
    return [one.id, *fields(about, page(), 11), "", *table(layout, rows, columns())]


def kernel_explained(group: Sequence[Specialization]) -> list[str]:
    """Each against the first: which argument made it necessary."""
    first = group[0]
    lines = [f"{first.kernel}: {count_text(len(group), 'specialization')}", f"  {first.id} first"]
    for one in group[1:]:
        lines.append(f"  {one.id} {_met(one)}")
        lines += [f"    {difference}" for difference in differences(first, one)]
    return lines


def _met(one: Specialization) -> str:
    if one.met.derived:
        return "never; derived from others"
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.met.at))
    tuning = ", to measure a config" if one.met.tuning else ""
    return f"{when}, {one.met.caller or 'caller unknown'}{tuning}"


def _varied(group: Sequence[Specialization]) -> set[str]:
    seen: dict[str, set[str]] = {}
    for one in group:
        for met in one.arguments:
            seen.setdefault(met.name, set()).add(met.hint)
        for name, value in one.options:
            seen.setdefault(name, set()).add(shown(value))
    return {name for name, texts in seen.items() if len(texts) > 1}


def _special(one: Specialization, varied: set[str]) -> str:
    parts = [f"{a.name}={a.hint}" for a in one.arguments if a.name in varied]
    parts += [f"{name}={shown(value)}" for name, value in one.options if name in varied]
    return " ".join(parts) or "–"


def _compiled_for(argument: JitArgument) -> str:
    text = argument.property_text
    if argument.declared == CONSTANT:
        return f"constant {shown(argument.special)}"
    return text if argument.specialize else f"{text} (not specialized)"


def _value(argument: JitArgument) -> str:
    return "" if argument.value is None else str(argument.value)
