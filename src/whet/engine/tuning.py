"""`tune`: the one loop everything else is around."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from whet.core.budget import Budget
from whet.core.context import shows_prompts
from whet.core.errors import TuningFailedError, UsageError
from whet.core.mode import Effort, Mode, checked_effort
from whet.core.process import memory_info
from whet.core.shown import live_display, watched
from whet.engine.executors import current
from whet.engine.fallback.mode import mode_for
from whet.engine.guard import WallLedger
from whet.engine.lockfile.in_force import in_force
from whet.engine.log import log_event
from whet.engine.recall import keep_place, located, new_run, recalled
from whet.engine.settings import Settings, resolve_settings
from whet.engine.target import KeepsCode, Target
from whet.search import RACED_WHOLE, check_search, takes_context
from whet.store import open_store

# Imported where they are used: what the store answers needs no run, and a new process should have
# it at once.
if TYPE_CHECKING:
    from whet.core.event import Event
    from whet.core.run import Result
    from whet.core.space import Space
    from whet.core.workload import Workload
    from whet.engine.executors.protocol import DeviceExecutor
    from whet.engine.plan import Plan
    from whet.engine.steps.run import TuningRun
    from whet.learn.prior import Prior
    from whet.search import Strategy
    from whet.store import Store

# Without a budget, what a space gets that is too large to be raced whole.
DEFAULT_TRIALS = 200

# With a time budget nobody knows how far it reaches; up to so many configs are taken as they come,
# many builds at once, rather than searched.
WHOLE_IN_TIME = 256


Subscriber: TypeAlias = "Callable[[Event], None]"
Transfer: TypeAlias = "Prior | Callable[[Space], Prior | None]"


def tune(
    target: Target,
    *,
    search: str | Strategy | None = None,
    budget: str | float | Budget | None = None,
    store: Store | str | Path | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    settings: Settings | None = None,
    plan: Plan | Callable[[], Plan] | None = None,
    transfer: Transfer | None = None,
    on_event: Subscriber | None = None,
    progress: bool | None = None,
    mode: Mode | None = None,
    effort: Effort | None = None,
    executor: DeviceExecutor | None = None,
    confirm: bool = True,
) -> Result:
    """Finds the fastest config of a target and stores it.

    `transfer` is prior knowledge about the space, or a function that returns it for a space; by
    default, a search that cannot try everything learns from stored workloads of the same kernel.
    `budget` is seconds, or a text such as "5m" or "200trials". Everything not given comes from the
    settings (environment, file, defaults). `store=":memory:"` stores nothing on disk.

    Raises `TuningFailedError` if nothing works, and `Interrupted` (a KeyboardInterrupt with the
    best so far) on Ctrl-C. `StoreLostError`, raised if the store can no longer be written, and
    `HostLostError`, raised if the machine runs out of space or processes, also carry the best so
    far.

    If another process is tuning the same workload in the same store, waits for it, within the
    budget and the setting `agree_wait`; after that the result is the best known so far, and its
    `source` is `waited`.

    With `effort="quick"`, configs that are not expected to be worth their builds are left out; a
    later tuning with `effort="full"` tries only these.

    With `progress`, shows how far it is: live on a terminal or in a notebook, as lines on stderr
    elsewhere. By default only where somebody watches and `on_event` is not given.

    A stored pick that is provisional, because the budget of its run ended before it was confirmed,
    is confirmed now; with `confirm=False` it is the result.

    `executor` says where it is built and measured; without one, in this process and its workers.

    In a mode that does not tune (from `mode`, the target, the context or the settings), returns the
    stored result of this workload, or raises `NotTunedError`.
    """
    if not isinstance(target, Target):
        raise UsageError(
            f"{type(target).__name__} cannot be tuned; use whet.function(…) or whet.native(…)"
        )
    settings = settings or resolve_settings().settings
    executor = executor or current.executor
    allowed = mode_for(target, mode, settings)
    if allowed != "tune":
        where = settings.store if store is None else store
        return _without_tuning(target, where, allowed, settings)
    settings = replace(
        settings,
        seed=settings.seed if seed is None else seed,
        jobs=settings.jobs if jobs is None else jobs,
        budget=settings.budget if budget is None else Budget.parse(budget),
        effort=settings.effort if effort is None else checked_effort(effort),
        samples=settings.samples or getattr(target, "samples", None),
        memory_bytes=settings.memory_bytes or memory_info("MemAvailable"),
    )
    ledger = WallLedger()
    if target.space.first is None:
        raise TuningFailedError(f"the space of '{target.name}' {_why_empty(target.space)}")
    wanted = search or settings.search
    check_search(wanted)
    spared = settings.effort == "quick" and wanted != "auto"
    if spared:
        settings = replace(settings, effort="full")
    with ExitStack() as stack:
        if store is None or isinstance(store, str | Path):
            where = settings.store if store is None else store
            opened = stack.enter_context(
                open_store(where, bundle=settings.bundle, wait_s=settings.store_wait_s)
            )
        else:
            opened = store
        name = wanted if isinstance(wanted, str) else wanted.name
        budget = _effective_budget(settings.budget, target.space)
        fixed = settings.samples or (0 if plan is None or callable(plan) else plan.fixed_samples)
        workload = located(target)
        known = recalled(target, workload, opened, settings, fixed or 0)
        if shows_prompts():
            from whet.engine.advice import show_prompt

            show_prompt(target, workload, opened, settings, budget, [*known.settled.values()])
        unheard = on_event is None and not _in_a_group()
        if unheard and known.answers(target.space, budget, settings.effort, confirm):
            run = new_run(workload, target.space, settings, budget, name, time.time())
            keep_place(opened, workload)
            return _logged(workload, lambda: known.answer(run, ledger))
        if progress is None:
            progress = unheard and watched()
        if progress:
            display = stack.enter_context(live_display(target.space.first))
            on_event = display if on_event is None else _both(on_event, display)
        if settings.keep_ir:
            target = _keeping_code(target, opened)
        from whet.engine.guard import Shield
        from whet.engine.steps.run import TuningRun

        shield = stack.enter_context(Shield())
        one = TuningRun(
            target,
            workload,
            name,
            lambda: _strategy(wanted, target, opened, settings, budget, transfer),
            opened,
            settings,
            budget,
            _plan(plan, settings, executor),
            ledger,
            on_event,
            shield,
            executor,
            confirm,
            known,
        )
        if spared:
            one.recorder.note(f"effort=quick has no effect with search={one.run.search}")
        return _logged(workload, lambda: _carried_out(one))


def _both(one: Subscriber, other: Subscriber) -> Subscriber:
    def hear(event: Event) -> None:
        one(event)
        other(event)

    return hear


def _keeping_code(target: Target, store: Store) -> Target:
    from whet.store.scanning import code_folder

    folder = code_folder(store)
    if folder is None or not isinstance(target, KeepsCode):
        return target
    return target.keeping(folder.absolute())


def _carried_out(one: TuningRun) -> Result:
    """Its own result, or what the ranks of a process group agreed on."""
    if not _in_a_group():
        return _in_turn(one)
    from whet.engine.other_processes import agreed

    return agreed(one, alone=_in_turn)


def _in_turn(one: TuningRun) -> Result:
    """One process at a time tunes a workload for a store."""
    if one.answered:
        return one.from_store()
    from whet.engine.other_processes import after_waiting
    from whet.engine.turns import Turn

    with Turn(one.store, one.run.workload.id) as turn:
        return one.tuned() if turn.take() else after_waiting(one, turn)


def _in_a_group() -> bool:
    """Never imports torch: whoever has a process group has imported it."""
    # Half imported, it has no such function yet.
    is_initialized = getattr(sys.modules.get("torch.distributed"), "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


def _without_tuning(
    target: Target, store: Store | str | Path | None, mode: Mode, settings: Settings
) -> Result:
    from whet.engine.fallback.untuned import (
        lock_for,
        locked_result,
        not_tuned,
        open_for,
        stored_result,
    )

    if mode == "off":
        raise not_tuned(target, target.workload(), mode, None)
    lock = lock_for(target, mode, settings)
    if lock is not None:
        return locked_result(lock, target)
    with ExitStack() as stack:
        if store is None or isinstance(store, str | Path):
            store = stack.enter_context(open_for(mode, store, settings))
        return stored_result(target, store, mode)


def _logged(workload: Workload, carry_out: Callable[[], Result]) -> Result:
    start = time.perf_counter()
    try:
        result = carry_out()
    except TuningFailedError as error:
        spent = time.perf_counter() - start
        log_event("failed", workload, pick=None, source="none", cost_s=spent, reason=str(error))
        raise
    in_force(workload, result.config)
    if result.source == "stored":
        reason = "tuned before"
    elif result.source == "waited":
        reason = result.notes[-1]
    else:
        times = "" if result.speedup is None else f", {result.speedup:.3g} times the first config"
        reason = f"the fastest of {len(result.trials)} tried{times}"
    log_event(
        "waited" if result.source == "waited" else "tuned",
        workload,
        pick=result.config,
        source=result.source,
        cost_s=time.perf_counter() - start,
        reason=reason,
        coverage=result.run.coverage,
    )
    return result


def _plan(
    plan: Plan | Callable[[], Plan] | None, settings: Settings, executor: DeviceExecutor | None
) -> Plan:
    from whet.engine.plan import Plan

    if settings.samples is not None:
        made = Plan.fixed(settings.samples)
    else:
        made = (plan() if callable(plan) else plan) or Plan()
    if executor is None:
        return made
    from whet.engine.executors.current import plan_for

    return plan_for(executor, made)


def _strategy(
    search: str | Strategy,
    target: Target,
    store: Store,
    settings: Settings,
    budget: Budget,
    transfer: Transfer | None,
) -> Strategy:
    from whet.search import make_strategy

    space = target.space
    within = WHOLE_IN_TIME if budget.trials is None else budget.trials
    whole = not budget.bounded or space.is_small(within)
    if not isinstance(search, str):
        return make_strategy(search, space, settings.seed)
    prior: Prior | None
    quick = settings.effort == "quick"
    if transfer is not None:
        prior = transfer(space) if callable(transfer) else transfer
    elif (whole and not quick) or not settings.learn:
        prior = None
    else:
        from whet.engine.recall import learned

        prior = learned(store, target.workload(), space, guess=not quick)
    context = None
    if takes_context(search):
        from whet.engine.advice import context_of

        workload = target.workload()
        context = context_of(target, workload, store, settings, budget, store.trials(workload.id))
    if quick:
        from whet.search.quick import Quick  # brings the models with it

        return Quick(space, settings.seed, transfer=prior)
    return make_strategy(search, space, settings.seed, prior, whole=whole, context=context)


def _why_empty(space: Space) -> str:
    without = [parameter.name for parameter in space.parameters if not parameter.values]
    if without:
        return f"is empty: parameter '{without[0]}' has no values"
    if not space.parameters:
        return "is empty: it has no parameters"
    texts = "; ".join(space.constraints)
    return f"has no valid config: its constraints ({texts}) rule out every combination"


def _effective_budget(budget: Budget, space: Space) -> Budget:
    if budget.bounded or space.is_small(RACED_WHOLE):
        return budget
    return Budget(trials=DEFAULT_TRIALS)
