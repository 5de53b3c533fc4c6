"""What `whet run --report` says of the autotuners that a script has left behind."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from whet.cli.terminal.output import Column, count_text, page, seconds_text, table, wrap

if TYPE_CHECKING:
    from whet.targets.triton.install import InstalledKernel

_LAYOUT = (
    Column("kernel", flexible=True),
    Column("defined at", flexible=True),
    Column("by", flexible=True),
    Column("keys", align="right"),
    Column("spent", align="right"),
)


def report(kernels: Sequence[InstalledKernel]) -> list[str]:
    """Those that cost the most first; those that were not called last."""
    if not kernels:
        return ["no kernel was autotuned"]
    ordered = sorted(kernels, key=lambda one: (not one.called, -one.seconds))
    head, *body = table(_LAYOUT, [_row(one) for one in ordered], page())
    lines = [head]
    for one, row in zip(ordered, body, strict=True):
        lines.append(row)
        if one.how == "left alone":
            lines += wrap(f"  left to {_class(one)}: {one.reason}", page(), indent=4)
    return [*lines, "", *wrap(_summary(kernels), page())]


def _row(one: InstalledKernel) -> tuple[str, ...]:
    by = {"subclass": f"whet in {_class(one)}", "left alone": _class(one)}.get(one.how, "whet")
    spent = seconds_text(one.seconds) if one.called else "not called"
    return one.kernel, _place(one.place), by, str(one.keys), spent


def _class(one: InstalledKernel) -> str:
    return one.kind.rpartition(".")[2]


def _place(place: str) -> str:
    """As short as an import would find it."""
    folders = [os.path.join(os.path.abspath(folder), "") for folder in sys.path]
    above = max((folder for folder in folders if place.startswith(folder)), key=len, default="")
    return place[len(above) :]


def _summary(kernels: Sequence[InstalledKernel]) -> str:
    how = Counter(one.how for one in kernels)
    ours = len(kernels) - how["left alone"]
    called = [one for one in kernels if one.called]
    said = f"{count_text(len(kernels), 'autotuner')}, {ours} tuned by whet"
    if how["left alone"]:
        said += f" and {how['left alone']} left alone"
    spent = seconds_text(sum(one.seconds for one in called))
    keys = count_text(sum(one.keys for one in called), "key")
    return f"{said}; {len(called)} called with {keys}, {spent} spent on tuning"
