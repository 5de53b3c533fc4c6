"""Which workload a command draws in the terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet.cli.arguments.exploring import library_of
from whet.cli.arguments.reading import NothingKnownError, problem_text
from whet.cli.arguments.sources import known_names, named
from whet.cli.terminal.output import count_text, page, printable, wrap
from whet.core.errors import UsageError, did_you_mean
from whet.explorer.drawings import HeatAxis, HeatGrid
from whet.explorer.library import Library
from whet.explorer.subject import Subject
from whet.replay import read_table


@dataclass(frozen=True)
class LookedAt:
    """One workload, and the others of the same name."""

    subject: Subject
    others: tuple[Subject, ...]

    @property
    def title(self) -> list[str]:
        workload = self.subject.workload
        return wrap(f"{problem_text(workload)} on {workload.device.name}", page(), indent=2)

    @property
    def further(self) -> list[str]:
        """How to see the others."""
        if not self.others:
            return []
        ids = ", ".join(one.id[:8] for one in self.others[:4])
        more = ", …" if len(self.others) > 4 else ""
        text = f"and {count_text(len(self.others), 'other workload')}: {ids}{more}"
        return ["", *wrap(text, page(), indent=2)]


def looked_at(name: str | None, store: str | None, table: str | None) -> LookedAt:
    """The most recently active one that goes by the name."""
    library = library_of(store) if table is None else Library(None, {table: read_table(table)})
    every = library.subjects()
    if not every:
        place = str(library.about()["store"])
        raise NothingKnownError(f"no results yet in {place}; {_remedy()}", place)
    found = every if name is None else _named(name, every)
    return LookedAt(found[0], tuple(found[1:]))


def _remedy() -> str:
    if os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y"):
        return "with TRITON_INTERPRET no Triton kernel is tuned: unset it, and use 'whet tune'"
    return "'whet tune' creates some"


def _named(name: str, every: Sequence[Subject]) -> list[Subject]:
    workloads = [one.workload for one in every]
    ids = named(name, workloads) or {one.id for one in workloads if one.id.startswith(name)}
    if not ids:
        hint = did_you_mean(name, known_names(workloads))
        raise UsageError(f"no results for kernel or workload '{name}'{hint}")
    return [one for one in every if one.workload.id in ids]


def readable(grid: HeatGrid) -> HeatGrid:
    """What a stranger's file calls its parameters must not steer the terminal."""
    return replace(
        grid,
        x=_axis(grid.x),
        y=_axis(grid.y),
        others=tuple(printable(name) for name in grid.others),
    )


def _axis(axis: HeatAxis) -> HeatAxis:
    return HeatAxis(printable(axis.name), tuple(printable(place) for place in axis.places))
