"""Refinement in the shadow of calls: a few candidates against the config in use, a step at a time.

refinement = whet.refine(target)
while serving:
    run(refinement.choice.config)
    refinement.after_call()
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Literal

import numpy as np

from whet._version import __version__
from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.errors import StoreError, UsageError
from whet.core.frozen import FrozenMap
from whet.core.run import Choice, Outcome, Run
from whet.core.status import Status
from whet.core.trial import Cost, Trial
from whet.core.workload import Workload
from whet.engine.crash_report import noticed
from whet.engine.fallback.background_race import Entrant, IdleRace, RaceStep
from whet.engine.fallback.inheritance import inheritance_candidates
from whet.engine.fallback.mode import current_mode
from whet.engine.fallback.policy import choose
from whet.engine.fallback.time_budget import TimeBudget
from whet.engine.log import log_event, logger
from whet.engine.settings import Settings, resolve_settings
from whet.engine.target import Target, bit_check_of, mode_of
from whet.measure.racing.stats import percent_text
from whet.store import MemoryStore, Store, open_store

CANDIDATES = 3

Step = Literal["plan", "write"] | RaceStep

# What a step is expected to take while none of its kind has been seen; later, so many times the
# longest of the last few. A kernel is not expected to take longer than a call of it does.
FIRST_S: dict[Step, float] = {
    "plan": 0.02,
    "open": 0.02,
    "build": 0.02,
    "poll": 0.001,
    "look": 0.2,
    "pair": 0.02,
    "write": 0.02,
}
MARGIN = 2.0
REMEMBERED = 4
LAUNCHES = 4


class NotNow(Exception):
    """Raised on the way into a step by what is around it: this is not the call for it."""


class Refinement:
    """Tunes one workload between calls. `choice` is the config to use now.

    `choice` changes at most once, at the end, and only to a config that was shown to be faster;
    measurements are stored then. `after_call` does at most one step (start a build, load a config,
    or take one sample of two configs), and only if the allowance covers it. The allowance limits
    the time of the calling thread; builds run on other cores, one at a time. A step that takes
    longer than expected is paid off before the next one. Errors are never raised: they end the
    refinement, and `failure` gives the reason.
    """

    def __init__(
        self,
        target: Target,
        store: Store,
        choice: Choice,
        candidates: Sequence[Config] | None = None,
        *,
        allowance: TimeBudget,
        settings: Settings | None = None,
    ) -> None:
        """Without `candidates`, those that may be inherited, then some of the space."""
        self.choice = choice
        self.allowance = allowance
        self.failure: str | None = None
        # By this one alone; the allowance has the sum of all that share it.
        self.spent_s = 0.0
        self.done = choice.source == "exact"
        self._target = target
        self._store = store
        self._candidates = candidates
        self._settings = settings or resolve_settings().settings
        self._stack = ExitStack()
        self._began = time.time()
        self._costs: dict[Step, deque[float]] = {}
        self._steps = self._work()
        self._next: Step = next(self._steps)

    def after_call(self, around: AbstractContextManager[object] | None = None) -> None:
        """Call this after each call. `around` is entered for a step, if there is one, and its cost
        counts.
        """
        if self.allowance.counts_call():
            self.step(around)

    def step(self, around: AbstractContextManager[object] | None = None) -> None:
        """Like `after_call`, for a call that the allowance has already counted."""
        if not self.done:
            with self.allowance.spending() as alone:
                if alone:
                    self.turn(around)

    def turn(self, around: AbstractContextManager[object] | None = None) -> None:
        """Like `after_call`, within the allowance's `spending`."""
        if self.done:
            return
        if self.allowance.covers(self.expected_s):
            self._advance(around or nullcontext())
        elif self.allowance.too_little:
            pace, share = 1e6 * self.allowance.pace_s, percent_text(self.allowance.share)
            self._give_up(f"calls come every {pace:.3g} µs, too often for {share} of that time")
            self._release()

    def at_end(self, call: Callable[[], object]) -> None:
        """Registers `call` to be called when the refinement is done, abandoned or closed."""
        self._stack.callback(call)

    def close(self) -> None:
        """Stops the refinement; nothing is written."""
        self.done = True
        self._steps.close()
        self._release()

    @property
    def expected_s(self) -> float:
        """The expected duration of the next step, in seconds."""
        seen = self._costs.get(self._next)
        if seen:
            return MARGIN * max(seen)
        return FIRST_S[self._next] + LAUNCHES * self.allowance.pace_s

    def _advance(self, around: AbstractContextManager[object]) -> None:
        kind, start = self._next, self.allowance.clock()
        try:
            with around:
                self._next = next(self._steps)
        except NotNow:
            return
        except StopIteration:
            self.done = True
        except Exception as error:
            self._give_up(str(error) or type(error).__name__)
        if self.done:
            self._release()
        took = self.allowance.clock() - start
        self.spent_s += took
        self._costs.setdefault(kind, deque(maxlen=REMEMBERED)).append(took)

    def _give_up(self, reason: str) -> None:
        self.done = True
        self.failure = reason
        logger.warning(f"tuning '{self._target.name}' between calls has stopped: {self.failure}")

    def _release(self) -> None:
        # What cannot be closed is nobody's business while calls go on.
        with suppress(Exception):
            self._stack.close()

    def _work(self) -> Generator[Step]:
        yield "plan"
        rivals = self._rivals()
        race = IdleRace(self._target, self.choice.config, rivals, self._store, self._settings)
        self._stack.callback(race.close)
        yield from race.steps()
        yield "write"
        self._settle(race)

    def _rivals(self) -> list[Config]:
        """What may be inherited, the author's first config, and for want of these any other; not
        what is known to fail, or ran when a process died: a tuning has the means to find out."""
        workload_id = self._target.workload().id
        left_out = {self.choice.config.id, *noticed(self._store, workload_id).suspects}
        wanted = self._candidates
        if wanted is None:
            space, rng = self._target.space, np.random.default_rng(self._settings.seed)
            enough = CANDIDATES + len(left_out)
            known = inheritance_candidates(self._target, self._store, enough)
            first = [] if space.first is None else [space.first]
            wanted = list(dict.fromkeys([*known, *first, *space.sample(rng, enough)]))
        rivals = [
            config
            for config in wanted
            if config.id not in left_out and not self._has_failed(workload_id, config)
        ]
        return rivals[:CANDIDATES]

    def _has_failed(self, workload_id: str, config: Config) -> bool:
        trial = self._store.latest(workload_id, config.id)
        return trial is not None and trial.status.failed

    def _settle(self, race: IdleRace) -> None:
        best, workload = race.champion.config, self._target.workload()
        reason = f"raced against {len(race.rivals)} others between calls"
        if race.incumbent.status is not None:
            reason += f"; [{race.incumbent.config}] {race.incumbent.reason}"
        self.choice = Choice(best, "exact", 1.0, reason)
        run, trials = self._outcome(race, workload)
        try:
            self._store.put_workload(workload)
            self._store.append(trials)
            self._store.save_run(run)
        except StoreError as error:
            logger.warning(f"results will not be saved: {error}")
        spent = self.spent_s
        log_event("tuned", workload, pick=best, source="idle", cost_s=spent, reason=reason)

    def _outcome(self, race: IdleRace, workload: Workload) -> tuple[Run, list[Trial]]:
        run = Run(
            workload=workload,
            space_id=self._target.space.id,
            space_size=self._target.space.count,
            search="idle",
            seed=self._settings.seed,
            # A tuning that may try more is not content with this.
            budget=Budget(trials=len(race.entrants)),
            outcome=Outcome.FINISHED,
            first=self._target.space.first,
            best=race.champion.config,
            equals=tuple(one.config for one in race.equals),
            trials=len(race.entrants),
            cost=Cost(
                sum((one.cost for one in race.entrants), Cost()).work,
                FrozenMap({"measure": self.spent_s}),
            ),
            started=self._began,
            wall_s=self.spent_s,
            whet=__version__,
        )
        return run, [_trial(one, run) for one in race.entrants]


def _trial(one: Entrant, run: Run) -> Trial:
    status = one.status or Status.OK
    return Trial(
        workload_id=run.workload.id,
        config=one.config,
        status=status,
        timing=None if status.failed else one.timing,
        cost=one.cost,
        facts=one.facts,
        error=one.reason,
        limit=one.limit,
        run_id=run.id,
        created=time.time(),
    )


def refine(
    target: Target,
    *,
    store: Store | str | Path | None = None,
    candidates: Sequence[Config] | None = None,
    allowance: TimeBudget | None = None,
    settings: Settings | None = None,
) -> Refinement:
    """Returns the config to use now, and refines it between later calls.

    Starts with what `choose` returns, and is done at once if that is a stored result for this
    workload, or if the mode does not allow measuring. The default `allowance` is the share of time
    in the settings (`idle_share`, 2 %).
    """
    settings = settings or resolve_settings().settings
    allowance = allowance or TimeBudget(settings.idle_share)
    mode = current_mode(mode_of(target), settings)
    if mode != "tune":
        where = settings.store if store is None else store
        choice = choose(target, store=where, mode=mode)
        refinement = Refinement(target, MemoryStore(), choice, allowance=allowance)
        refinement.close()
        return refinement
    if bit_check_of(target) is not None:
        raise UsageError(f"whet.refine does not compare bits; tune '{target.name}' with whet.tune")
    with ExitStack() as stack:
        if store is None or isinstance(store, str | Path):
            where = settings.store if store is None else store
            store = stack.enter_context(
                open_store(where, bundle=settings.bundle, wait_s=settings.store_wait_s)
            )
        choice = choose(target, store=store, mode="cached")
        refinement = Refinement(
            target, store, choice, candidates, allowance=allowance, settings=settings
        )
        if not refinement.done:
            refinement.at_end(stack.pop_all().close)
    return refinement
