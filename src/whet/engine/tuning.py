"""`tune`: the one loop everything else is around."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from whet._version import __version__
from whet.build import Builder
from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.cost import Cost
from whet.core.errors import TuningFailedError, UsageError
from whet.core.event import BuildStarted, Event, RunFinished, RunStarted
from whet.core.frozen import FrozenMap
from whet.core.mode import Mode, checked_mode
from whet.core.run import Outcome, Result, Run
from whet.core.space import Space
from whet.core.status import Status
from whet.core.trial import LimitKind, Trial
from whet.engine.accounts.ledger import WallLedger
from whet.engine.accounts.timeline import TimelineKeeper
from whet.engine.exploration import Exploration
from whet.engine.finals import Finals, Winner
from whet.engine.host import memory_info
from whet.engine.interrupt import Shield
from whet.engine.known import Knowledge, relatives
from whet.engine.learning import learned
from whet.engine.log import log_event
from whet.engine.plan import Plan
from whet.engine.ranks.adoption import adopt
from whet.engine.ranks.agreement import Agreed, Agreement, Progress
from whet.engine.ranks.board import Board, BoardLostError, group_board
from whet.engine.ranks.turns import turn
from whet.engine.recorder import Candidate, Recorder
from whet.engine.settings import Settings, resolve_settings
from whet.engine.target import BenchLimits, Target
from whet.engine.untuned.missed import not_tuned
from whet.engine.untuned.mode import current_mode
from whet.engine.untuned.policy import choose, open_for, own_mode, stored_result
from whet.engine.workbench import Workbench
from whet.learn.prior import Prior
from whet.search import Strategy, check_search, make_strategy
from whet.store import Store, open_store
from whet.workers import no_forks

# Without a budget, a space up to this size is raced whole; a larger one gets this many trials.
WHOLE_SPACE = 1024
DEFAULT_TRIALS = 200

# With a time budget nobody knows how far it reaches; up to so many configs are taken as they come,
# many builds at once, rather than searched.
WHOLE_IN_TIME = 256


Transfer: TypeAlias = Prior | Callable[[Space], Prior | None]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a tuning. `result` is the best so far, None where nothing worked yet."""

    def __init__(self, result: Result | None) -> None:
        super().__init__("tuning was interrupted")
        self.result = result


def tune(
    target: Target,
    *,
    search: str | Strategy | None = None,
    budget: str | Budget | None = None,
    store: Store | str | Path | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    settings: Settings | None = None,
    plan: Plan | None = None,
    transfer: Transfer | None = None,
    on_event: Callable[[Event], None] | None = None,
    mode: Mode | None = None,
) -> Result:
    """Finds the fastest config of a target and remembers it.

    `transfer` is what is known of its space beforehand, or a function that says so of a space;
    without it, a search that cannot try everything learns from the store's other workloads of the
    same kernel. What is not given comes from the settings (environment, file, defaults).
    `store=":memory:"` leaves nothing behind. Raises `TuningFailedError` where nothing works, and
    `Interrupted`, which is a KeyboardInterrupt with the best so far, on Ctrl-C.

    In a mode that does not tune (`mode`, else the target's, the context's or the settings') it
    returns the stored result of this very workload, or raises `NotTunedError`.
    """
    if not isinstance(target, Target):
        raise UsageError(
            f"{type(target).__name__} cannot be tuned; make it tunable with whet.function(…) "
            "or whet.native(…)"
        )
    settings = settings or resolve_settings().settings
    allowed = current_mode(own_mode(target), settings) if mode is None else checked_mode(mode)
    if allowed != "tune":
        where = settings.store if store is None else store
        return _without_tuning(target, where, allowed, settings.bundle)
    settings = replace(
        settings,
        seed=settings.seed if seed is None else seed,
        jobs=settings.jobs if jobs is None else jobs,
        budget=settings.budget if budget is None else Budget.parse(budget),
    )
    ledger = WallLedger()
    if target.space.first is None:
        raise TuningFailedError(f"the space of '{target.name}' {_why_empty(target.space)}")
    check_search(search or settings.search)
    with ExitStack() as stack:
        if store is None or isinstance(store, str | Path):
            where = settings.store if store is None else store
            opened = stack.enter_context(open_store(where, bundle=settings.bundle))
        else:
            opened = store
        shield = stack.enter_context(Shield())
        with no_forks():
            strategy = _strategy(search or settings.search, target, opened, settings, transfer)
        tuning = _Tuning(
            target,
            strategy,
            opened,
            settings,
            (plan or Plan()).under(settings),
            ledger,
            on_event,
            shield,
        )
        return _logged(target, tuning.run)


def _without_tuning(
    target: Target, store: Store | str | Path | None, mode: Mode, bundle: str | None
) -> Result:
    if mode == "off":
        raise not_tuned(target, target.workload(), mode, None)
    with ExitStack() as stack:
        if store is None or isinstance(store, str | Path):
            store = stack.enter_context(open_for(mode, store, bundle))
        return stored_result(target, store, mode)


def _logged(target: Target, run: Callable[[], Result]) -> Result:
    start = time.perf_counter()
    workload = target.workload()
    try:
        result = run()
    except TuningFailedError as error:
        spent = time.perf_counter() - start
        log_event("failed", workload, pick=None, source="none", cost_s=spent, reason=str(error))
        raise
    if result.source == "stored":
        reason = "tuned before"
    else:
        times = "" if result.speedup is None else f", {result.speedup:.3g} times the first config"
        reason = f"the fastest of {len(result.trials)} tried{times}"
    log_event(
        "tuned",
        workload,
        pick=result.config,
        source=result.source,
        cost_s=time.perf_counter() - start,
        reason=reason,
    )
    return result


def _strategy(
    search: str | Strategy,
    target: Target,
    store: Store,
    settings: Settings,
    transfer: Transfer | None,
) -> Strategy:
    space, budget = target.space, _effective_budget(settings.budget, target.space)
    within = WHOLE_IN_TIME if budget.trials is None else budget.trials
    whole = not budget.bounded or space.is_small(within)
    if not isinstance(search, str):
        return make_strategy(search, space, settings.seed)
    prior: Prior | None
    if transfer is not None:
        prior = transfer(space) if callable(transfer) else transfer
    elif whole or not settings.learn:
        prior = None
    else:
        prior = learned(store, target.workload(), space)
    return make_strategy(search, space, settings.seed, prior, whole=whole)


class _Tuning:
    """One run, from the store and back to it."""

    def __init__(
        self,
        target: Target,
        strategy: Strategy,
        store: Store,
        settings: Settings,
        plan: Plan,
        ledger: WallLedger,
        on_event: Callable[[Event], None] | None,
        shield: Shield,
    ) -> None:
        self._target = target
        self._strategy = strategy
        self._store = store
        self._settings = settings
        self._plan = plan
        self._ledger = ledger
        self._shield = shield
        self._memory = settings.memory_bytes or memory_info("MemAvailable")
        self._budget = _effective_budget(settings.budget, target.space)
        self._run = Run(
            workload=target.workload(),
            space_id=target.space.id,
            space_size=target.space.count,
            first=target.space.first,
            search=strategy.name,
            seed=settings.seed,
            budget=self._budget,
            started=time.time(),
            whet=__version__,
        )
        self._timeline = TimelineKeeper()
        subscribers: list[Callable[[Event], None]] = [self._timeline]
        if on_event is not None:
            subscribers.append(on_event)
        self._recorder = Recorder(store, self._run, subscribers, shield)
        self._known = self._recall()
        self._exhaustive = False

    def run(self) -> Result:
        board = group_board()
        if board is None:
            return self._in_turn()
        try:
            return self._agreed(board)
        except BoardLostError as lost:
            self._recorder.note(f"each rank chooses for itself: {lost}")
            return self._in_turn()

    def _agreed(self, board: Board) -> Result:
        agreement = Agreement(
            board,
            f"{self._run.workload.id}/{self._run.space_id}",
            self._settings.agree_wait_s,
            tune=self._here,
            progress=lambda: Progress(len(self._recorder.trials), self._recorder.best),
            stopgap=lambda: self._stopgap(board.rank),
        )
        try:
            answer = agreement.reach()
        except Interrupted:
            raise
        except KeyboardInterrupt:
            raise Interrupted(None) from None
        if isinstance(answer, Result):
            return answer
        self._known = self._recall()
        if (
            self._answered
            and answer.best
            and self._known.incumbents[0].config == answer.best.config
        ):
            return self._from_store()
        with self._shield.held():
            result = adopt(
                answer,
                self._run,
                self._store,
                self._ledger,
                self._first(()),
                len(self._known.settled),
            )
        self._recorder.emit(RunStarted(result.run, 0, result.known))
        self._recorder.emit(RunFinished(result))
        return result

    def _stopgap(self, rank: int) -> Agreed:
        choice = choose(self._target, store=self._store)
        trial = Trial(self._run.workload.id, choice.config, Status.OK)
        return Agreed(rank, trial, reason=f"nothing was found in time; {choice.reason}")

    def _in_turn(self) -> Result:
        if self._answered:
            return self._from_store()
        wait_s = self._settings.agree_wait_s
        with turn(self._store, self._run, wait_s) as alone:
            if not alone:
                self._recorder.note(
                    f"another process has been tuning this for {wait_s:g} s and still is; "
                    "timings may disturb each other"
                )
            return self._here()

    @property
    def _answered(self) -> bool:
        return self._known.answers(self._target.space, self._budget)

    def _here(self) -> Result:
        self._known = self._recall()  # somebody else may have written more while this one waited
        if self._answered:
            return self._from_store()
        if self._budget != self._settings.budget:
            self._recorder.note(
                f"the space is large, so {self._budget} are tried; set a budget for more or less"
            )
        with self._shield.held():
            self._store.put_workload(self._run.workload)
            self._store.save_run(self._run)
        self._recorder.emit(RunStarted(self._run, self._planned(), len(self._known.settled)))
        try:
            winner = self._tune()
        except KeyboardInterrupt:
            with self._shield.held():
                result = self._finish(self._best_so_far(), Outcome.INTERRUPTED)
            raise Interrupted(result) from None
        with self._shield.held():
            result = self._finish(winner, Outcome.FINISHED)
        if result is None:
            raise TuningFailedError(self._why_nothing_works())
        return result

    def _recall(self) -> Knowledge:
        limits: dict[LimitKind, float | None] = {
            "build_s": self._settings.build_limit_s,
            "run_s": self._settings.run_limit_s,
            "memory_bytes": self._memory,
        }
        return Knowledge.recall(
            self._store,
            self._run.workload.id,
            self._target.space,
            limits,
            self._target.method,
            self._plan.fixed_samples or 0,
        )

    def _planned(self) -> int | None:
        count = self._target.space.count
        left = None if count is None else max(0, count - len(self._known.settled))
        allowed = self._budget.trials
        known = [number for number in (left, allowed) if number is not None]
        return min(known, default=None)

    def _tune(self) -> Winner | None:
        with ExitStack() as stack:
            # Entered last, left first: a kernel must not run on while its builder is closed.
            builder = stack.enter_context(
                Builder(
                    jobs=self._settings.jobs,
                    mode=self._target.build_mode,
                    limit_s=self._settings.build_limit_s,
                    on_start=lambda config: self._recorder.emit(BuildStarted(config)),
                )
            )
            bench = stack.enter_context(closing(self._target.bench(BenchLimits(self._memory))))
            self._bench = Workbench(
                target=self._target,
                builder=builder,
                bench=bench,
                race=self._plan.new_race(),
                plan=self._plan,
                recorder=self._recorder,
                ledger=self._ledger,
                build_limit_s=self._settings.build_limit_s,
                run_limit_s=self._settings.run_limit_s,
                jobs=self._settings.jobs,
                budget=self._budget,
            )
            self._admit_incumbents()
            with self._ledger.phase("search"), no_forks():
                self._strategy.tell(list(self._known.settled.values()))
            exploration = Exploration(
                self._bench,
                self._strategy,
                self._reserve_s,
                lambda: relatives(self._store, self._run.workload, self._target.space),
                self._known.settled,
            )
            exploration.run()
            self._exhaustive = exploration.complete
            return Finals(self._bench).run()

    @property
    def _reserve_s(self) -> float:
        """Time kept back for the finals."""
        seconds = self._budget.seconds
        return 0.0 if seconds is None else min(5.0, 0.2 * seconds)

    def _admit_incumbents(self) -> None:
        for trial in self._known.incumbents:
            candidate = Candidate(
                trial.config, order=len(self._bench.candidates), facts=trial.facts, stored=trial
            )
            self._bench.candidates[candidate.id] = candidate
            comparable = trial.timing is not None and not trial.timing.host_bound
            samples = trial.timing.samples if trial.timing and comparable else ()
            self._recorder.consider_best(trial)
            self._bench.put_out(
                self._bench.race.enter(candidate.id, candidate.order, prior=samples)
            )

    def _best_so_far(self) -> Winner | None:
        best = self._recorder.best
        return None if best is None else Winner(self._bench.candidates[best.config.id])

    def _finish(self, winner: Winner | None, outcome: Outcome) -> Result | None:
        if winner is None and outcome is Outcome.FINISHED:
            outcome = Outcome.FAILED
        if winner is not None and outcome is Outcome.FINISHED:
            self._settle(winner)
        trials = self._recorder.trials
        work = sum((trial.cost for trial in trials), Cost())
        wall = self._ledger.close()
        search = FrozenMap({**work.work, "search": wall["search"]})
        self._run = replace(
            self._run,
            outcome=outcome,
            exhaustive=self._exhaustive and outcome is Outcome.FINISHED,
            best=None if winner is None else winner.candidate.config,
            equals=() if winner is None else tuple(c.config for c in winner.equals),
            trials=len(trials),
            cost=Cost(search, wall),
            wall_s=sum(wall.values()),
        )
        self._store.save_run(self._run)
        self._store.save_timeline(self._run.id, self._timeline.timeline())
        if winner is None:
            return None
        best = winner.candidate.trial or winner.candidate.stored
        assert best is not None
        return self._result(best, trials, winner)

    def _settle(self, winner: Winner) -> None:
        """Everything measured that neither won nor equals the winner was outraced."""
        if self._plan.fixed_samples is not None:
            return
        kept = {winner.candidate.id, *(candidate.id for candidate in winner.equals)}
        outcomes = []
        for candidate in self._bench.candidates.values():
            last = candidate.trial or candidate.stored
            if last is None or not last.status.measured:
                continue
            if candidate.id in kept:
                outcomes.append((candidate, Status.OK, ""))
            else:
                reason = winner.lost.get(candidate.id, last.error)
                outcomes.append((candidate, Status.OUTRACED, reason))
        self._recorder.measured_all(outcomes)

    def _result(self, best: Trial, trials: tuple[Trial, ...], winner: Winner) -> Result:
        if winner.said:
            self._recorder.note(winner.said)
        result = Result(
            run=self._run,
            best=best,
            first=self._first(trials),
            trials=trials,
            known=len(self._known.settled),
            equals=self._run.equals,
            notes=tuple(self._recorder.notes),
            paired_speedup=winner.speedup,
        )
        self._recorder.emit(RunFinished(result))
        return result

    def _first(self, trials: tuple[Trial, ...]) -> Trial | None:
        first = self._target.space.first
        assert first is not None
        found = [trial for trial in trials if trial.config == first]
        trial = found[0] if found else self._known.settled.get(first.id)
        return trial if trial is not None and trial.timing is not None else None

    def _from_store(self) -> Result:
        best = self._known.incumbents[0]
        stored = self._known.run
        equals: tuple[Config, ...] = stored.equals if stored else ()
        wall = self._ledger.close()
        run = replace(
            self._run,
            outcome=Outcome.FINISHED,
            best=best.config,
            equals=equals,
            exhaustive=stored.exhaustive if stored else False,
            cost=Cost(FrozenMap(), wall),
            wall_s=sum(wall.values()),
        )
        result = Result(
            run=run,
            best=best,
            first=self._first(()),
            trials=(),
            known=len(self._known.settled),
            source="stored",
            equals=equals,
        )
        self._recorder.emit(RunStarted(run, 0, len(self._known.settled)))
        self._recorder.emit(RunFinished(result))
        return result

    def _why_nothing_works(self) -> str:
        trials = self._recorder.trials or tuple(self._known.settled.values())
        counts = ", ".join(
            f"{n} {status}" for status, n in Counter(t.status for t in trials).items()
        )
        failed = next((trial for trial in trials if trial.error), None)
        first = f"; first: [{failed.config}] {failed.error.splitlines()[0]}" if failed else ""
        where = "" if self._recorder.trials else " (as the store remembers)"
        return (
            f"no config of '{self._target.name}' works{where}: {counts or 'none was tried'}{first}"
        )


def _why_empty(space: Space) -> str:
    without = [parameter.name for parameter in space.parameters if not parameter.values]
    if without:
        return f"is empty: parameter '{without[0]}' has no values"
    if not space.parameters:
        return "is empty: it has no parameters"
    texts = "; ".join(space.constraints)
    return f"has no valid config: its constraints ({texts}) rule out every combination"


def _effective_budget(budget: Budget, space: Space) -> Budget:
    if budget.bounded or space.is_small(WHOLE_SPACE):
        return budget
    return Budget(trials=DEFAULT_TRIALS)
