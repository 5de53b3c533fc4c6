"""What `whet run --report` says of the autotuners that a script has left behind."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from whet.cli.terminal.output import Column, count_text, page, seconds_text, shorten, table, wrap

if TYPE_CHECKING:
    from whet.targets.triton.install import InstalledKernel

_LAYOUT = (
    Column("kernel", flexible=True),
    Column("line", align="right"),
    Column("tuned by", flexible=True),
    Column("keys", align="right"),
    Column("spent", align="right"),
)


def report(kernels: Sequence[InstalledKernel], interpreted: bool = False) -> list[str]:
    """Those that were called, beneath their files, and then the others. `interpreted` are kernels
    that Triton ran as Python, of which none is tuned."""
    if not kernels:
        return ["no kernel was autotuned"]
    called = [one for one in kernels if one.called]
    lines = [*_called(called, interpreted), ""] if called else []
    for by, others in _grouped([one for one in kernels if not one.called], _by):
        lines.append(f"not called ({by}):")
        for file, ones in _grouped(others, _file):
            named = ", ".join(f"{one.kernel}:{_line(one)}" for one in ones)
            lines += wrap(f"  {file}: {named}", page(), indent=4)
        lines.append("")
    for reason in sorted({_left(one) for one in kernels if one.how == "left alone"}):
        lines += wrap(reason, page(), indent=2)
    return [*lines, *wrap(_summary(kernels, interpreted), page(), indent=2)]


def _called(kernels: Sequence[InstalledKernel], interpreted: bool) -> list[str]:
    head, *body = table(_LAYOUT, [_row(one, interpreted) for one in kernels], page())
    rows = dict(zip(map(id, kernels), body, strict=True))
    lines = [head]
    for file, ones in _grouped(kernels, _file):
        lines += [shorten(file, page()), *(rows[id(one)] for one in ones)]
    return lines


def _row(one: InstalledKernel, interpreted: bool) -> tuple[str, ...]:
    spent = seconds_text(one.seconds) if one.seconds else "–"
    by = "–" if interpreted else _by(one)
    return f"  {one.kernel}", _line(one), by, str(one.keys), spent


def _grouped(
    kernels: Sequence[InstalledKernel], key: Callable[[InstalledKernel], str]
) -> list[tuple[str, list[InstalledKernel]]]:
    """In the order in which the groups are met."""
    groups: dict[str, list[InstalledKernel]] = {}
    for one in kernels:
        groups.setdefault(key(one), []).append(one)
    return list(groups.items())


def _by(one: InstalledKernel) -> str:
    return {"subclass": f"whet in {_class(one)}", "left alone": _class(one)}.get(one.how, "whet")


def _left(one: InstalledKernel) -> str:
    return f"left alone: kernels of {_class(one)}, because {one.reason}"


def _line(one: InstalledKernel) -> str:
    return one.place.rpartition(":")[2]


def _class(one: InstalledKernel) -> str:
    return one.kind.rpartition(".")[2]


def _file(one: InstalledKernel) -> str:
    """As short as an import would find it."""
    place = one.place.rpartition(":")[0]
    folders = [os.path.join(os.path.abspath(folder), "") for folder in sys.path]
    above = max((folder for folder in folders if place.startswith(folder)), key=len, default="")
    return place[len(above) :]


def _summary(kernels: Sequence[InstalledKernel], interpreted: bool) -> str:
    if interpreted:
        return (
            f"{count_text(len(kernels), 'autotuner')}; TRITON_INTERPRET is set, so kernels run as "
            "Python on the CPU, each with its first config, and none is tuned or compiled"
        )
    how = Counter(one.how for one in kernels)
    ours = len(kernels) - how["left alone"]
    called = [one for one in kernels if one.called]
    said = f"{count_text(len(kernels), 'autotuner')}, {ours} tuned by whet"
    if how["left alone"]:
        said += f" and {how['left alone']} left alone"
    if not called:
        return f"{said}; none was called"
    spent = seconds_text(sum(one.seconds for one in called))
    keys = count_text(sum(one.keys for one in called), "key")
    return f"{said}; {len(called)} called with {keys}, {spent} spent on tuning"
