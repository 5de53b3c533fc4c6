"""Why results of one kernel are kept apart: what its source has captured, and where it is from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from whet.core.errors import StoreError
from whet.core.workload import Workload, captured_differences
from whet.engine.fallback.missed import Traceable
from whet.engine.target import Claiming, FromFile, Target

if TYPE_CHECKING:
    from whet.store import Store


def located(target: Target) -> Workload:
    """The target's workload, with the place where it is defined."""
    workload = target.workload()
    where = target.defined_at() if isinstance(target, Traceable) else ""
    file = str(target.file) if isinstance(target, FromFile) else ""
    if not where and file and not file.startswith("<"):  # made in a function, or in a notebook
        where = f"{file}:{workload.kernel}"
    return replace(workload, origin=workload.origin.at(where))


def keep_place(store: Store, workload: Workload) -> None:
    """Lets the name that is used now lead to what is stored, too. A bundle keeps its own names."""
    own: Store = getattr(store, "layers", (store,))[0]
    known = own.match(workload)
    if own.read_only or known is None or known.kind != "strict":
        return
    if not set(workload.origin.places) <= set(known.workload.origin.places):
        with suppress(StoreError):
            own.put_workload(workload)


def apart_notes(store: Store, target: Target, workload: Workload) -> list[str]:
    """What keeps these results from others of the same kernel, in words and with a remedy."""
    claims = target.claims if isinstance(target, Claiming) else {}
    clashes = [
        f"key= has {name}={claims[name]!r}, but the code uses {name}={value}; make them match, "
        "or rename one of them"
        for name, value in workload.origin.captured.items()
        if name in claims
    ]
    return [*clashes, *_captured_note(store, workload, claims)]


def _captured_note(store: Store, workload: Workload, claims: Mapping[str, Any]) -> list[str]:
    """Nothing of a name that the key has already: it needs no advice but to agree."""
    for summary in store.workloads(workload.kernel):
        other = summary.workload
        if other.fingerprint == workload.fingerprint or not other.origin.code:
            continue
        if other.origin.code != workload.origin.code:
            continue
        found = captured_differences(workload.origin, other.origin)
        changes = {name: values for name, values in found.items() if name not in claims}
        if changes:
            said = ", ".join(f"{name}={now} (was {was})" for name, (now, was) in changes.items())
            return [
                f"same code as before, but it captures {said}; results are kept separate; "
                f"{remedy(changes)}"
            ]
    return []


def remedy(names: Iterable[str]) -> str:
    """What to do about values that a source captures."""
    said = " and ".join(names)
    return f"put {said} in key= to combine them"
