"""What the store's other workloads of a kernel teach about one that is to be tuned."""

from __future__ import annotations

from typing import Any

from whet.core.space import Space
from whet.core.workload import Workload
from whet.learn.keys import key_distance
from whet.learn.prior import Prior, prior_for
from whet.store import StoreReader

# So many of the nearest workloads are read: more teach little, and reading them takes time.
NEAREST = 24


def learned(
    store: StoreReader, workload: Workload, space: Space, *, guess: bool = True
) -> Prior | None:
    """From the same source at other keys and on other devices, the nearest first; None where the
    store knows of none. What nobody has tried is guessed at, which takes a second or more."""
    mine = _key(workload)
    others = [
        summary.workload
        for summary in store.workloads(workload.kernel)
        if summary.ok
        and summary.workload.id != workload.id
        and summary.workload.fingerprint == workload.fingerprint
    ]
    others.sort(key=lambda other: key_distance(mine, _key(other)))
    known = [(_key(other), store.trials(other.id)) for other in others[:NEAREST]]
    return prior_for(mine, space, known, guess=guess)


def _key(workload: Workload) -> dict[str, Any]:
    """Another device is as far away as another dtype."""
    return {**workload.key, " device": workload.device.name}
