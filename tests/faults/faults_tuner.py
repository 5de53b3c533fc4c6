"""A tuner that tests start and kill.

faults_tuner.py KIND STORE    tunes; prints "started", at the end the config and what it knew before
"""

from __future__ import annotations

import json
import sys

from faults_kernel import BEST, PATIENT, Poison, healthy, kernel, poisoned

import whet
from whet.core.config import Config
from whet.core.event import Event, RunStarted
from whet.engine.target import Target

CHEAP_POISONS = (Poison.WRITES_FAR, Poison.ASKS_FOR_TOO_MUCH, Poison.ABORTS, Poison.DOES_NOTHING)


def count_up(turns: int) -> int:
    total = 0
    for i in range(2000 * turns):
        total += i
    return total > 0


def target(kind: str) -> tuple[Target, Config]:
    """What to tune, and its best config: any other has at least three times its work."""
    if kind == "native":
        return kernel(healthy(12) + poisoned(CHEAP_POISONS)), BEST
    return whet.function(count_up, {"turns": [1, *range(3, 40)]}, key={}), Config(turns=1)


def main(kind: str, store: str) -> None:
    known = 0

    def heed(event: Event) -> None:
        nonlocal known
        if isinstance(event, RunStarted):
            known = event.known
            print("started", flush=True)

    chosen, _ = target(kind)
    result = whet.tune(chosen, store=store, settings=PATIENT, on_event=heed)
    print(json.dumps({"config": dict(result.config), "known": known}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
