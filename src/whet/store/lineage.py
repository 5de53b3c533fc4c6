"""Which run knew of which.

The runs of one store form a chain: each knew those that started before it. A merge brings in runs
that know nothing of it; they meet again in the first run that chooses a config knowing both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from whet.core.run import Run


def departing(runs: Sequence[Run]) -> tuple[Run, ...]:
    """A store's runs, oldest first, as another store takes them: what their place in the chain
    said is written into `after`."""
    taken = []
    before: tuple[str, ...] = ()
    for run in runs:
        if not run.taken:
            run = replace(run, after=(*before, *_known(run)), taken=True)
            before = (run.id,)
        taken.append(run)
    return tuple(taken)


def lineages(runs: Sequence[Run]) -> list[frozenset[str]]:
    """The ids of the runs, newest first, divided by who knew of whom: each set holds a run that
    no other one knew, and all that this one knew, so that two may overlap. One where nothing was
    ever merged."""
    parents = _parents(runs)
    known = set().union(*parents.values())
    return [_ancestry(tip, parents) for tip in parents if tip not in known]


def placed(run: Run, known: Sequence[Run]) -> Run:
    """The run as a store first keeps it that has the runs `known`, newest first: it knows them
    all, and does not learn of others later."""
    parents = _parents(known)
    met = set().union(*parents.values())
    strangers = [one.id for one in known if one.taken and one.id not in met]
    return replace(run, after=tuple(dict.fromkeys((*run.after, *strangers))))


def _known(run: Run) -> Iterable[str]:
    """A run that chose nothing has not settled anything between those it knew."""
    return run.after if run.taken or run.chose else ()


def _parents(runs: Sequence[Run]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    before: str | None = None
    for run in reversed(runs):
        found[run.id] = set(_known(run))
        if not run.taken:
            found[run.id].update(() if before is None else (before,))
            before = run.id
    return found


def _ancestry(tip: str, parents: dict[str, set[str]]) -> frozenset[str]:
    found: set[str] = set()
    waiting = [tip]
    while waiting:
        id = waiting.pop()
        if id in parents and id not in found:
            found.add(id)
            waiting += parents[id]
    return frozenset(found)
