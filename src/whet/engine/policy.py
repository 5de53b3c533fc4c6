"""What to use when tuning is not allowed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from whet.core.errors import TuningFailedError
from whet.core.run import Choice
from whet.engine.settings import resolve_settings
from whet.engine.target import Target
from whet.store import Store, open_if_there


def choose(target: Target, *, store: Store | str | Path | None = None) -> Choice:
    """The config to use now, from what is known, without building or measuring anything.

    In this order: the stored best of this very workload; the best of the nearest workload of the
    same kernel, if the space still offers it; the author's first config.
    """
    with ExitStack() as stack:
        if store is None or isinstance(store, str | Path):
            settings = resolve_settings().settings
            where = settings.store if store is None else store
            store = stack.enter_context(open_if_there(where, bundle=settings.bundle))
        workload = target.workload()
        match = store.match(workload)
        best = None if match is None else store.best(match.workload.id)
    if match is not None and best is not None and best.config in target.space:
        if match.kind == "strict":
            return Choice(best.config, "exact", 1.0, "tuned for this workload")
        differs = ", ".join(match.differs)
        return Choice(
            best.config, "nearest", 0.5, f"tuned for {match.workload}; differs: {differs}"
        )
    first = target.space.first
    if first is None:
        raise TuningFailedError(f"the space of '{target.name}' has no valid config")
    return Choice(first, "first", 0.0, "nothing is known of this kernel; the author's first config")
