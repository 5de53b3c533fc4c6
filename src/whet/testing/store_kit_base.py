"""What the tests of stores have in common."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whet.core.config import Config
from whet.core.errors import StoreError
from whet.core.workload import Workload
from whet.store.protocol import Store
from whet.testing.samples import a_trial, a_workload


class StoreMaker:
    def make_store(self, folder: Path) -> Store:
        raise NotImplementedError("implement make_store to create an empty store")

    def filled(self, folder: Path, *trials: Any, **changes: Any) -> tuple[Store, Workload]:
        """A store that knows `a_workload(**changes)` and its trials, each given as arguments of
        `a_trial`: a dict of keywords."""
        store, workload = self.make_store(folder), a_workload(**changes)
        store.put_workload(workload)
        store.append(a_trial(workload, **trial) for trial in trials)
        return store, workload


def refusal(call: Callable[[], Any], kind: type[Exception] = StoreError) -> str:
    """The message of the error that `call` must end in."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__} was raised")


def best_config(store: Store, workload: Workload) -> Config | None:
    best = store.best(workload.id)
    return None if best is None else best.config


def matched(store: Store, workload: Workload) -> Workload | None:
    found = store.match(workload)
    return None if found is None else found.workload


def die_if_stuck(seconds: int = 30) -> None:
    """For forked children: a lock that is never freed shall fail a test, not hang it."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)


def in_child(check: Callable[[], bool]) -> bool:
    """What `check` says in a forked child; False as well where it raises."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_if_stuck()
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
