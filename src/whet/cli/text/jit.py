"""What is said of specializations."""

from __future__ import annotations

import time
from collections.abc import Sequence

from whet.cli.terminal.output import Column, columns, count_text, fields, page, seconds_text, table
from whet.targets.triton.jit.specialization import CONSTANT, JitArgument, Specialization, shown
from whet.targets.triton.jit.variants import Reachable, by_kernel, differences


def listing(found: Sequence[Specialization], more: Reachable | None) -> list[str]:
    """One line each; what all of a kernel have in common is left out."""
    reachable = more.found if more else ()
    layout = [
        Column("id"),
        Column("kernel", flexible=True),
        Column("special", flexible=True),
        Column("took", align="right"),
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
    layout = [Column("argument"), Column("compiled for", flexible=True), Column("met with")]
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
        for argument in one.arguments:
            seen.setdefault(argument.name, set()).add(argument.hint)
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
