"""What runs left behind that ended in the middle of a first launch.

Why it is so: docs/decisions/crashes.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from whet.core.process import Mark, ProcessName, lives
from whet.core.run import Outcome
from whet.core.status import Status
from whet.core.trial import Trial
from whet.store import Store

# A process on another host cannot be asked whether it lives; one that looks at a config for so
# long does not.
ELSEWHERE_S = 86_400.0


@dataclass(frozen=True)
class CrashReport:
    """What is left of runs whose process died, or lost its device, in a first launch: `open` marks,
    and as `suspects` the configs (ids) in them of which nothing has been heard since. Where there
    are any marks, whatever else is tried may well end in the same way.

    A config that ran alone may be the culprit, or its process was killed by somebody else: where it
    can be measured in another process, that tells; where it cannot, it is blamed. Of several that
    ran together, one may be the culprit.
    """

    suspects: frozenset[str] = frozenset()
    open: tuple[Mark, ...] = ()

    def notes(self, *, isolated: bool) -> list[str]:
        if not self.open:
            return []
        runs = ", ".join(mark.run_id[:8] for mark in self.open)
        ended = f"the process of run {runs} died or lost its device during a first launch"
        if isolated:
            return [f"{ended}; measuring configs in a separate process"]
        if not self.suspects:
            return []
        what = "1 config" if len(self.suspects) == 1 else f"{len(self.suspects)} configs"
        return [f"{ended}; running {what} last and one at a time, to identify the cause"]


def examine(
    store: Store,
    workload_id: str,
    alive: Callable[[ProcessName], bool | None] = lives,
    now: Callable[[], float] = time.time,
) -> CrashReport:
    """Ends the runs that cannot do so themselves; safe to repeat."""
    found = noticed(store, workload_id, alive, now)
    for mark in found.open:
        _end_run(store, mark)
    return found


def noticed(
    store: Store,
    workload_id: str,
    alive: Callable[[ProcessName], bool | None] = lives,
    now: Callable[[], float] = time.time,
) -> CrashReport:
    """The same for who only reads."""
    over = tuple(mark for mark in store.marks(workload_id) if _is_over(mark, alive, now()))
    suspects = frozenset[str]().union(*(_unclear(store, mark) for mark in over))
    return CrashReport(suspects, over)


def blame(store: Store, found: CrashReport) -> tuple[CrashReport, list[Trial]]:
    """Writes down that those who ran alone have failed, and clears who ran together with them: a
    process ends once. What is left, and who was blamed."""
    alone = [mark for mark in found.open if len(mark.configs) == 1 and _unclear(store, mark)]
    culprits = [_blamed(mark, time.time()) for mark in alone]
    store.append(culprits)
    failed = {trial.config.id for trial in culprits}
    left = []
    for mark in found.open:
        if failed.isdisjoint(config.id for config in mark.configs):
            left.append(mark)
        else:
            store.unmark(mark.run_id)
    suspects = frozenset[str]().union(*(_unclear(store, mark) for mark in left))
    return CrashReport(suspects, tuple(left)), culprits


def close(store: Store, crash_report: CrashReport) -> None:
    """Removes the marks whose configs have all had their outcome since."""
    for mark in crash_report.open:
        if not _unclear(store, mark):
            store.unmark(mark.run_id)


def _is_over(mark: Mark, alive: Callable[[ProcessName], bool | None], now: float) -> bool:
    if mark.spoiled:
        return True
    known = alive(mark.process)
    return now - mark.at > ELSEWHERE_S if known is None else not known


def _unclear(store: Store, mark: Mark) -> set[str]:
    """Which of its configs have had no outcome since."""
    latest = {config.id: store.latest(mark.workload_id, config.id) for config in mark.configs}
    return {id for id, trial in latest.items() if trial is None or trial.created < mark.at}


def how_it_ended(mark: Mark) -> str:
    ended = "lost its device" if mark.spoiled else "died"
    return (
        f"the process that first ran it {ended} (run {mark.run_id[:8]}, pid {mark.process.pid} "
        f"on {mark.process.host})"
    )


def _blamed(mark: Mark, now: float) -> Trial:
    return Trial(
        workload_id=mark.workload_id,
        config=mark.configs[0],
        status=Status.RUN_ERROR,
        error=how_it_ended(mark),
        run_id=mark.run_id,
        created=now,
    )


def _end_run(store: Store, mark: Mark) -> None:
    run = store.run(mark.run_id)
    if run is None or run.outcome is not Outcome.RUNNING:
        return
    trials = [t for t in store.trials(mark.workload_id, all=True) if t.run_id == run.id]
    ended = replace(
        run,
        outcome=Outcome.INTERRUPTED,
        trials=len({trial.config.id for trial in trials}),
        wall_s=max(0.0, mark.at - run.started),
    )
    store.save_run(ended)
