"""What earlier runs left in the store, and what of it holds for this one.

Why it is so: docs/decisions/stored-answers.md.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from whet._version import __version__
from whet.core.budget import Budget
from whet.core.errors import StoreError
from whet.core.frozen import FrozenMap
from whet.core.mode import Effort
from whet.core.process import user_and_host
from whet.core.run import Outcome, Result, Run, Stop
from whet.core.status import LimitKind, Status
from whet.core.trial import Cost, Trial
from whet.core.workload import Workload, captured_differences
from whet.engine.guard import WallLedger
from whet.engine.settings import Settings
from whet.engine.target import Claiming, FromFile, Target, Traceable

if TYPE_CHECKING:
    from whet.core.config import Config
    from whet.core.space import Space
    from whet.core.timing import Method
    from whet.learn.prior import Prior
    from whet.store import Store, StoreReader


# Spaces up to this size are compared config by config; larger ones by their identity.
SMALL = 20_000

# Whet 0.1 cut first calls by what other configs needed, and wrote down the limit that was set. Who
# was cut so may be the best.
CUT_BY_0_1 = "while the quickest config needed"

# Workloads of the same kernel on other keys that are looked at, the most recent first.
RELATIVES = 3


@dataclass(frozen=True)
class Knowledge:
    """`settled` trials need not be repeated. `incumbents` are those a newcomer must beat: what
    `run` chose, and what was measured since by runs that chose nothing here (`undecided`).
    `contested` are picks of several stores, this one's first: they are not settled, since only
    measuring them on one occasion can tell which is the faster."""

    settled: dict[str, Trial]
    incumbents: tuple[Trial, ...]
    run: Run | None
    undecided: bool = False
    contested: tuple[Trial, ...] = ()

    @classmethod
    def recall(
        cls,
        store: StoreReader,
        workload_id: str,
        space: Space,
        limits: dict[LimitKind, float | None],
        method: Method | None = None,
        samples: int = 0,
    ) -> Knowledge:
        """What was measured in another way than by `method` (another timer, another state of the
        L2 cache), or less often than `samples`, is not known; failures hold however their config
        would have been measured."""

        def holds(trial: Trial) -> bool:
            return (
                trial.config in space
                and _comparable(trial, method)
                and (trial.timing is None or len(trial.timing.samples) >= samples)
                and not _worth_retrying(trial, limits)
            )

        settled = {t.config.id: t for t in store.trials(workload_id) if holds(t)}
        runs = store.runs(workload_id)
        if not any(trial.status.measured for trial in settled.values()):
            tried = [trial for trial in store.trials(workload_id, all=True) if holds(trial)]
            settled = _believed(settled, tried, runs)
        pick = store.pick(workload_id)
        picks = () if pick is None else tuple(filter(holds, (pick.trial, *pick.rivals)))
        if len(picks) > 1:
            for trial in picks:
                settled.pop(trial.config.id, None)
            return cls(settled, (), None, contested=picks)
        # A pick of several stores' stands by its own samples, not by the latest of its config.
        settled.update((trial.config.id, trial) for trial in picks)
        chose = [run for run in runs if run.chose and run.best and run.best.id in settled]
        chose.sort(key=lambda run: not picks or run.best != picks[0].config)
        for run in chose[:1]:
            assert run.best is not None
            best, others = settled[run.best.id], {one.id for one in chose}
            newer = [one for one in runs[: runs.index(run)] if not one.taken]
            since = {one.id for one in newer if one.id not in others}
            later = _fastest_first(
                trial for trial in settled.values() if trial.run_id in since and trial != best
            )
            undecided = bool(later)
            if run.provisional:  # whoever was measured may still be the best
                later = _fastest_first(trial for trial in settled.values() if trial != best)
            return cls(settled, (best, *later), run, undecided)
        # Without a chosen best, whoever was measured may be it: what an outraced config lost
        # against need not be in this space.
        return cls(settled, _fastest_first(settled.values()), None)

    @property
    def best(self) -> Trial | None:
        """For now: nobody has shown that it is."""

        def rank(trial: Trial) -> tuple[bool, bool, float]:
            timing = trial.timing
            slow = timing is None or timing.host_bound
            return trial.status is not Status.OK, slow, trial.median_ns or math.inf

        if self.contested:
            return self.contested[0]
        return min(self.incumbents, key=rank, default=None)

    def answers(
        self, space: Space, budget: Budget, effort: Effort = "full", confirm: bool = False
    ) -> bool:
        """True when a finished run has already done what is asked now. One that left out what was
        not expected to pay answers only whoever asks for no more, and one whose pick is provisional
        nobody who wants it confirmed."""
        if self.run is None or not self.incumbents or (confirm and self.run.provisional):
            return False
        same = self.run.space_id == space.id
        if same and not self.run.exhaustive and self.run.budget.covers(budget):
            return self.run.stopped is not Stop.EFFORT or effort == "quick"
        decided = not self.undecided or (same and self.run.exhaustive)
        return decided and self._knows_all(space)

    def answer(self, run: Run, ledger: WallLedger) -> Result:
        """As the result of `run`, which has nothing left to do. Itself it is not stored."""
        best, stored, tried = self.incumbents[0], self.run, len(self.settled)
        stopped = None if stored is None else stored.stopped
        kept = stored is not None and stored.best == best.config
        wall = ledger.close()
        run = replace(
            run,
            tried=tried,
            stopped=Stop.COMPLETE if tried == run.space_size else stopped,
            # To go on, a further run has to exceed the budget of the one that answers.
            budget=run.budget if stored is None else stored.budget,
            outcome=Outcome.FINISHED,
            best=best.config,
            equals=stored.equals if stored else (),
            paired_speedup=stored.paired_speedup if stored and kept else None,
            provisional=stored.provisional if stored and kept else False,
            exhaustive=stored.exhaustive if stored else False,
            cost=Cost(FrozenMap(), wall),
            wall_s=sum(wall.values()),
        )
        return Result(
            run=run,
            best=best,
            first=self.timed(run.first),
            trials=(),
            known=tried,
            source="stored",
            equals=run.equals,
        )

    def timed(self, config: Config | None) -> Trial | None:
        """What is known of a config, where it was timed."""
        trial = None if config is None else self.settled.get(config.id)
        return trial if trial is not None and trial.timing is not None else None

    def _knows_all(self, space: Space) -> bool:
        return space.is_small(SMALL) and all(config.id in self.settled for config in space)


def recalled(
    target: Target,
    workload: Workload,
    store: StoreReader,
    settings: Settings,
    samples: int = 0,
) -> Knowledge:
    """Of the target's workload, under the limits of today."""
    limits: dict[LimitKind, float | None] = {
        "build_s": settings.build_limit_s,
        "run_s": settings.run_limit_s,
        "first_call_s": settings.first_call_s,
        "memory_bytes": settings.memory_bytes,
    }
    return Knowledge.recall(store, workload.id, target.space, limits, target.method, samples)


def new_run(
    workload: Workload,
    space: Space,
    settings: Settings,
    budget: Budget,
    search: str,
    started: float,
) -> Run:
    return Run(
        workload=workload,
        space_id=space.id,
        space_size=space.count,
        first=space.first,
        search=search,
        seed=settings.seed,
        budget=budget,
        started=started,
        whet=__version__,
        writer="@".join(user_and_host()),
    )


def start_after(store: StoreReader, workload_id: str) -> float:
    """Now, but not before any run of the workload that is stored already.

    A store has its newest run by when each started. A clock that was ahead once and has been set
    right would make the newest run the older one for years, and its choice nobody's.
    """
    return max([time.time(), *(run.started for run in store.runs(workload_id))])


def _believed(
    settled: dict[str, Trial], tried: Iterable[Trial], runs: Iterable[Run]
) -> dict[str, Trial]:
    """Where nothing works, that may be for want of something on the host which tried. So what
    failed on another one holds only for configs that have failed on this one, too."""
    elsewhere = {run.id for run in runs if run.host not in ("", platform.node())}
    own = {trial.config.id for trial in tried if trial.run_id not in elsewhere}
    return {id: trial for id, trial in settled.items() if id in own}


def _fastest_first(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Those that were measured at all."""
    measured = [trial for trial in trials if trial.status.measured]
    return tuple(sorted(measured, key=lambda trial: trial.median_ns or 0.0))


def relatives(store: StoreReader, workload: Workload, space: Space) -> list[Trial]:
    """Trials of the same kernel, device and toolchain on other keys, of configs in `space`."""
    known = [
        summary.workload.id
        for summary in store.workloads(workload.kernel)
        if summary.ok
        and summary.workload.id != workload.id
        and summary.workload.fingerprint == workload.fingerprint
        and summary.workload.device.name == workload.device.name
        and summary.workload.toolchain == workload.toolchain
    ]
    return [
        trial for id in known[:RELATIVES] for trial in store.trials(id) if trial.config in space
    ]


def timed_like(trial: Trial, method: Method | None) -> bool:
    """Whether it was timed in this way; without a method, in any but by somebody else's
    benchmark."""
    timing = trial.timing
    if timing is None:
        return False
    return timing.foreign is None if method is None else timing.method == method


def _comparable(trial: Trial, method: Method | None) -> bool:
    """A foreign summary counts for nothing of ours."""
    timing = trial.timing
    if timing is None or method is None:
        return timing is None or timing.foreign is None
    return timing.foreign is None and timing.method == method


def _worth_retrying(trial: Trial, limits: dict[LimitKind, float | None]) -> bool:
    limit = trial.limit
    if limit is None:
        return False
    from whet.builds.builder import outgrown

    wronged = limit.configured is None and CUT_BY_0_1 in trial.error
    return wronged or outgrown(limit, limits.get(limit.kind))


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


# So many of the nearest workloads are read: more teach little, and reading them takes time.
NEAREST = 24


def learned(
    store: StoreReader, workload: Workload, space: Space, *, guess: bool = True
) -> Prior | None:
    """From the same source at other keys and on other devices, the nearest first; None where the
    store knows of none. What nobody has tried is guessed at, which takes a second or more."""
    from whet.learn.keys import key_distance
    from whet.learn.prior import prior_for

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
