"""One run, from the store and back to it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import replace

from whet.builds.builder import Builder
from whet.builds.shared import PoolSource
from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.errors import HostFailure, StoreError, TuningFailedError
from whet.core.event import BuildStarted, Event, RunFinished, RunStarted
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Result, Stop
from whet.core.status import Status
from whet.core.trial import Cost, Trial
from whet.core.workload import Workload
from whet.engine import crash_report
from whet.engine.executors.current import builds_on
from whet.engine.executors.protocol import DeviceExecutor
from whet.engine.guard import (
    DeviceLostError,
    Guard,
    HostLostError,
    Interrupted,
    LaunchJournal,
    Shield,
    Spoilt,
    StoreLostError,
    WallLedger,
    Watchdog,
)
from whet.engine.log import log_note, warn
from whet.engine.plan import Plan
from whet.engine.recall import (
    Knowledge,
    apart_notes,
    keep_place,
    new_run,
    recalled,
    relatives,
    start_after,
)
from whet.engine.settings import Settings
from whet.engine.steps.build import Builds
from whet.engine.steps.explore import Exploration
from whet.engine.steps.finals import Contest, Duels, Winner, lowest_median, race
from whet.engine.steps.record import Candidate, Recorder, timeline_of
from whet.engine.steps.samples import LEAST_S, Sampler, least_finals_s
from whet.engine.target import BenchLimits, BuiltAhead, Target, bit_check_of
from whet.measure.bench.bits import FREE_NS, BitCheck, Reference, ReferenceBench
from whet.measure.bench.protocol import Bench
from whet.measure.racing.race import Race
from whet.search import Strategy
from whet.store import Store
from whet.workers.process import no_forks


class TuningRun:
    """`budget` is what holds where the settings leave it open. The strategy called `search` is made
    only where there is something to try: some bring libraries with them that take long to import.
    """

    def __init__(
        self,
        target: Target,
        workload: Workload,
        search: str,
        strategy: Callable[[], Strategy],
        store: Store,
        settings: Settings,
        budget: Budget,
        plan: Plan,
        ledger: WallLedger,
        on_event: Callable[[Event], None] | None,
        shield: Shield,
        executor: DeviceExecutor | None,
        confirm: bool,
        known: Knowledge,
    ) -> None:
        self.target = target
        self._confirm = confirm
        self._executor = executor
        self._make_strategy = strategy
        self.store = store
        self.settings = settings
        self._plan = plan
        self.ledger = ledger
        self.shield = shield
        self._budget = budget
        started = start_after(store, workload.id)
        self.run = new_run(workload, target.space, settings, budget, search, started)
        self._began = time.monotonic()
        self.recorder = Recorder(store, self.run, [on_event] if on_event else [], shield)
        self._watch = Watchdog(settings.stall_timeout_s, self._warn, lambda: self.recorder.heard_at)
        self.known = known
        self._exhaustive = False
        self._stopped: Stop | None = None
        self._crash_report = crash_report.CrashReport()

    @property
    def answered(self) -> bool:
        space, effort = self.target.space, self.settings.effort
        return self.known.answers(space, self._budget, effort, self._confirm)

    @property
    def seconds_left(self) -> float:
        seconds = self._budget.seconds
        return float("inf") if seconds is None else seconds - self.ledger.elapsed

    @property
    def out_of_time(self) -> bool:
        """Whether nothing could be tried any more."""
        return self.seconds_left <= least_finals_s(self._budget)

    def start_now(self) -> None:
        """What others have done while this run waited came before it."""
        self.run = replace(self.run, started=start_after(self.store, self.run.workload.id))

    def tuned(self) -> Result:
        if self.store.marks(self.run.workload.id):
            with self.shield.held():
                self._crash_report = crash_report.examine(self.store, self.run.workload.id)
        self.known = self.recall()  # somebody else may have written more while this one waited
        if self.answered:
            return self.from_store()
        with no_forks():
            self._strategy = self._make_strategy()
        self._begin()
        try:
            winner = self._tune()
        except KeyboardInterrupt:
            best = self._ended_early(Stop.INTERRUPTED, self._best_so_far())
            raise Interrupted(best) from None
        except HostFailure as failure:
            best = self._ended_early(Stop.HOST, self._best_so_far())
            raise HostLostError(str(failure), best) from failure
        except DeviceLostError:
            self._ended_early(Stop.DEVICE, None)
            raise
        except Spoilt as spoilt:
            with self.shield.held():
                lost = self._device_lost(spoilt)
            raise lost from spoilt.failure
        except StoreError as error:
            best = self._ended_early(Stop.STORE, self._best_so_far())
            raise StoreLostError(str(error), best) from error
        except Exception:
            self._ended_early(Stop.ERROR, None)
            raise
        try:
            with self.shield.held():
                result = self._finish(winner, Outcome.FINISHED)
        except StoreError as error:
            best = self._ended_early(Stop.STORE, winner)
            raise StoreLostError(str(error), best) from error
        if result is None:
            settled = tuple(self.known.settled.values())
            writers = {run.id: run.writer for run in self.store.runs(self.run.workload.id)}
            why = self.recorder.why_nothing_works(settled, self._budget, writers)
            raise TuningFailedError(f"no config of '{self.target.name}' {why}")
        return result

    def _begin(self) -> None:
        if self._budget != self.settings.budget:
            self.recorder.note(
                f"the space is large, so the budget is {self._budget.text}; set a budget for "
                "more or less"
            )
        with self.shield.held():
            self.store.save_run(self.run)
        self.recorder.emit(RunStarted(self.run, self._planned(), len(self.known.settled)))
        if self.known.contested:
            self._contest.announce()
        if self.run.workload.origin.captured:
            self._say_what_is_kept_apart()

    def _say_what_is_kept_apart(self) -> None:
        for note in apart_notes(self.store, self.target, self.run.workload):
            self.recorder.note(note)
            log_note(self.run.workload, note)

    def _warn(self, text: str) -> None:
        self.recorder.note(text)
        warn(text)

    def recall(self) -> Knowledge:
        samples = self._plan.fixed_samples or 0
        return recalled(self.target, self.run.workload, self.store, self.settings, samples)

    def _planned(self) -> int | None:
        count = self.target.space.count
        left = None if count is None else max(0, count - len(self.known.settled))
        allowed = self._budget.trials
        known = [number for number in (left, allowed) if number is not None]
        return min(known, default=None)

    def _tune(self) -> Winner | None:
        with ExitStack() as stack:
            self._sampler = self._opened(stack)
            self._admit_incumbents()
            self._explore()
            winner = self._decided()
            say_price(self._sampler, winner, self.known)
            return self._contest.judged(winner) if self.known.contested else winner

    def _opened(self, stack: ExitStack) -> Sampler:
        """Entered last, left first: a kernel must not run on while its builder is closed."""
        self._ahead = self.target.ahead() if isinstance(self.target, BuiltAhead) else None
        shared: PoolSource | None = None if self._ahead is None else self._ahead.pool
        jobs, slots = self.settings.jobs, None
        if self._executor is not None:
            shared, slots = builds_on(self._executor, self.target, shared, jobs)
        builder = stack.enter_context(
            Builder(
                jobs=jobs,
                mode=self.target.build_mode,
                limit_s=self.settings.build_limit_s,
                on_start=lambda config: self.recorder.emit(BuildStarted(config)),
                shared=shared,
            )
        )
        stack.enter_context(self._watch.kept())
        bench = self._measuring(stack)
        journal = LaunchJournal(self.store, self.run.workload, self.run.id, self.shield, bench)
        journal.refuse_if_lost()
        if self._crash_report.open:
            self._look_back(isolated=not bench.in_process)
        guard = Guard(self.ledger, self._watch, journal, bench)
        candidates: dict[str, Candidate] = {}
        builds = Builds(
            target=self.target,
            builder=builder,
            recorder=self.recorder,
            guard=guard,
            limit_s=self.settings.build_limit_s,
            candidates=candidates,
            relatives=lambda: relatives(self.store, self.run.workload, self.target.space),
            never_cut=self._contested,
            at_once=slots,
        )
        return Sampler(
            target=self.target,
            builds=builds,
            bench=bench,
            race=Race(self._plan.race),
            plan=self._plan,
            recorder=self.recorder,
            guard=guard,
            run_limit_s=self.settings.run_limit_s,
            first_call_limit_s=self.settings.first_call_s,
            jobs=slots or jobs,
            budget=self._budget,
            candidates=candidates,
        )

    def _measuring(self, stack: ExitStack) -> Bench:
        isolate = self.settings.isolate or bool(self._crash_report.open)
        device_memory = self.settings.device_memory_bytes
        memory = self.settings.memory_bytes
        limits = BenchLimits(memory, isolate, device_memory, self._first_call_s)
        method = self.target.method
        if self._executor is None:
            bench = self.target.bench(limits)
        else:
            from whet.engine.executors.spread import bench_on  # few have more than one device

            bench = bench_on(self._executor, self.target, limits, self.store, self.recorder.note)
        bench = compared(bench, self.target, self.known)
        stack.enter_context(closing(bench))
        if self.target.method != method:  # there was no memory for the other way
            self.known = self.recall()
        return bench

    def _explore(self) -> None:
        with self._sampler.guard.searching():
            self._strategy.tell(list(self.known.settled.values()))
        exploration = Exploration(
            self._sampler,
            self._strategy,
            self.known.settled,
            self._crash_report.suspects if self._sampler.bench.in_process else frozenset(),
            [*self._contested, *self._built_ahead],
        )
        exploration.run()
        self._exhaustive, self._stopped = exploration.complete, exploration.stopped

    def _decided(self) -> Winner | None:
        if self._plan.fixed_samples is None:
            finalists, complete = race(self._sampler)
            winner = Duels(self._sampler, self.known.run).winner(finalists)
            return winner and replace(winner, confirmed=winner.confirmed and complete)
        best = lowest_median(self._sampler)
        return None if best is None else Winner(best)

    @property
    def _contest(self) -> Contest:
        return Contest(self.known.contested, self.recorder)

    @property
    def _contested(self) -> list[Config]:
        return [trial.config for trial in self.known.contested]

    @property
    def _built_ahead(self) -> list[Config]:
        ahead = () if self._ahead is None else self._ahead.built_ahead
        return [config for config in ahead if config.id not in self.known.settled]

    @property
    def _undecided(self) -> bool:
        return bool(self.known.contested) and self._contest.undecided

    def _look_back(self, *, isolated: bool) -> None:
        """What to make of those that ran when an earlier process ended."""
        if not isolated and self._crash_report.suspects:
            with self.shield.held():
                self._crash_report, culprits = crash_report.blame(self.store, self._crash_report)
            self.known = self.recall()
            for trial in culprits:
                self.recorder.note(f"skipping [{trial.config}]: {trial.error}")
        for note in self._crash_report.notes(isolated=isolated):
            self.recorder.note(note)

    def _first_call_s(self) -> float:
        least = LEAST_S if self.recorder.best else max(LEAST_S, self._budget.seconds or 0.0)
        return min(self.settings.first_call_s, max(least, self.seconds_left))

    def _admit_incumbents(self) -> None:
        for trial in self.known.incumbents:
            candidate = Candidate(
                trial.config, order=len(self._sampler.candidates), facts=trial.facts, stored=trial
            )
            self._sampler.candidates[candidate.id] = candidate
            comparable = trial.timing is not None and not trial.timing.host_bound
            samples = trial.timing.samples if trial.timing and comparable else ()
            self.recorder.consider_best(trial)
            self._sampler.expect_looks_like(trial.cost)
            self._sampler.put_out(
                self._sampler.race.enter(candidate.id, candidate.order, prior=samples)
            )

    def _best_so_far(self) -> Winner | None:
        best = self.recorder.best
        return (
            self._contest.in_use()
            if best is None
            else Winner(self._sampler.candidates[best.config.id])
        )

    def _ended_early(self, stopped: Stop, best: Winner | None) -> Result | None:
        self._stopped = stopped
        with self.shield.held():
            return self._finish(best, Outcome.INTERRUPTED)

    def _finish(self, winner: Winner | None, outcome: Outcome) -> Result | None:
        if winner is None and outcome is Outcome.FINISHED:
            outcome = Outcome.FAILED
        if winner is not None and outcome is Outcome.FINISHED and not self._undecided:
            self._settle(winner)
        trials = self.recorder.trials
        tried = len(self.known.settled.keys() | {trial.config.id for trial in trials})
        work = sum((trial.cost for trial in trials), Cost())
        wall = self.ledger.close()
        search = FrozenMap({**work.work, "search": wall["search"]})
        self.run = replace(
            self.run,
            outcome=outcome,
            exhaustive=self._exhaustive and outcome is Outcome.FINISHED,
            # A choice would end the contest.
            best=None if winner is None or self._undecided else winner.candidate.config,
            equals=() if winner is None else tuple(c.config for c in winner.equals),
            trials=len(trials),
            tried=tried,
            stopped=Stop.COMPLETE if tried == self.run.space_size else self._stopped,
            paired_speedup=None if winner is None else self._paired_speedup(winner),
            provisional=winner is not None and not winner.confirmed,
            cost=Cost(search, wall),
            wall_s=sum(wall.values()),
        )
        # Nobody's best so far is lost because that it was interrupted could not be written.
        with suppress(StoreError) if outcome is Outcome.INTERRUPTED else nullcontext():
            self.store.save_run(self.run)
            self.store.save_timeline(self.run.id, timeline_of(self._began, self.recorder.timed))
            if self._crash_report.open:
                crash_report.close(self.store, self._crash_report)
        if winner is None:
            return None
        best = winner.candidate.trial or winner.candidate.stored
        assert best is not None
        return self._result(best, trials, winner)

    def _device_lost(self, spoilt: Spoilt) -> DeviceLostError:
        """A config that ran alone has failed; of several nobody knows which one has."""
        error = self._sampler.guard.journal.lost(spoilt)
        if len(spoilt.configs) == 1:
            self.recorder.failed(self._sampler.candidates[spoilt.configs[0].id], spoilt.failure)
        self._stopped = Stop.DEVICE
        error.result = self._finish(self._best_so_far(), Outcome.INTERRUPTED)
        return error

    def _paired_speedup(self, winner: Winner) -> float | None:
        """Where the earlier run's choice stays and the author's first config took no part, that
        run's duel has the last word."""
        earlier = self.known.run
        if winner.speedup is None and earlier is not None and earlier.first == self.run.first:
            return earlier.paired_speedup if earlier.best == winner.candidate.config else None
        return winner.speedup

    def _settle(self, winner: Winner) -> None:
        if self._plan.fixed_samples is None:
            kept = {winner.candidate.id, *(candidate.id for candidate in winner.equals)}
            self.recorder.settle(self._sampler.candidates.values(), kept, winner.lost)

    def _result(self, best: Trial, trials: tuple[Trial, ...], winner: Winner) -> Result:
        if winner.said:
            self.recorder.note(winner.said)
        result = Result(
            run=self.run,
            best=best,
            first=self.first(trials),
            trials=trials,
            known=len(self.known.settled.keys() - {trial.config.id for trial in trials}),
            equals=self.run.equals,
            notes=tuple(self.recorder.notes),
        )
        self.recorder.emit(RunFinished(result))
        return result

    def first(self, trials: tuple[Trial, ...]) -> Trial | None:
        first = self.target.space.first
        assert first is not None
        found = [trial for trial in trials if trial.config == first]
        trial = found[0] if found else self.known.settled.get(first.id)
        return trial if trial is not None and trial.timing is not None else None

    def from_store(self) -> Result:
        """As the result of this run, which has nothing left to do."""
        keep_place(self.store, self.run.workload)
        result = self.known.answer(self.run, self.ledger)
        self.recorder.emit(RunStarted(result.run, 0, result.known))
        self.recorder.emit(RunFinished(result))
        return result


# Samples of the best and of the fastest that was refused, taken in turns, to know the price.
ROUNDS = 9


def compared(bench: Bench, target: Target, known: Knowledge) -> Bench:
    """The bench, and what it runs compared where the target asks for it. What an earlier run
    measured has the reference's bits, or it would have failed."""
    check = bit_check_of(target)
    if check is None:
        return bench
    first = target.space.first
    trials = sorted(known.settled.values(), key=lambda trial: trial.config != first)
    stored = (Reference.stored(trial.facts) for trial in trials if trial.status.measured)
    return ReferenceBench(bench, check, next((one for one in stored if one), None))


def say_price(sampler: Sampler, winner: Winner | None, known: Knowledge) -> None:
    """How much faster the best would have been without the check, where there is one."""
    bench = sampler.bench
    if not isinstance(bench, ReferenceBench):
        return
    for note in bench.notes:
        sampler.recorder.note(note)
        warn(f"{sampler.target.name}: {note}")
    if winner is None:
        return
    trials = {**known.settled, **{trial.config.id: trial for trial in sampler.recorder.trials}}
    text = _price(sampler, bench.check, winner.candidate, list(trials.values()))
    sampler.recorder.note(text)
    log_note(sampler.target.workload(), text)


def _price(sampler: Sampler, check: BitCheck, best: Candidate, trials: list[Trial]) -> str:
    refused = [
        (float(str(trial.facts[FREE_NS])), trial.config)
        for trial in trials
        if trial.status is Status.WRONG_RESULT and FREE_NS in trial.facts
    ]
    if not refused:
        return f"check={check} refused no config"
    free_ns, free = min(refused, key=lambda pair: (pair[0], pair[1].id))
    best_ns = math.inf if best.known_timing is None else best.known_timing.median_ns
    rival = sampler.candidates.get(free.id)
    if rival is not None and best.ready and rival.ready and sampler.seconds_left > 0:
        # A few samples chose the rival, which flatters it.
        taken = sampler.side_by_side([best, rival], ROUNDS)
        free_ns, best_ns = taken.get(rival.id, free_ns), taken.get(best.id, best_ns)
    many = f"{len(refused)} config{'' if len(refused) == 1 else 's'}"
    if free_ns >= best_ns:
        return f"check={check} refused {many}, none of them faster than the best"
    return (
        f"check={check} refused {many}; without it [{free}] would be the fastest, "
        f"{best_ns / free_ns:.3g} times as fast"
    )
