"""Which implementation a call uses: tuned now, or known, inherited or the first."""

from __future__ import annotations

from whet.core.errors import StoreError, TuningFailedError
from whet.core.mode import Mode
from whet.core.run import Result
from whet.engine.fallback.missed import not_tuned
from whet.engine.fallback.policy import (
    choose,
    chosen_from,
    exact_pick,
    first_choice,
    lock_for,
)
from whet.engine.guard import HostLostError, StoreLostError
from whet.engine.plan import Plan
from whet.engine.settings import Settings, resolve_settings
from whet.engine.tuning import tune
from whet.store import MemoryStore, Store
from whet.targets.choice.alternatives import PARAMETER
from whet.targets.choice.target import ChoiceTarget
from whet.targets.triton.stores import opened
from whet.targets.triton.warn import say_once


class BusyPick(Exception):
    """Another process has been tuning the same for too long; `name` is to be used meanwhile."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def tuned_pick(target: ChoiceTarget) -> str:
    """The name of the fastest; of the first where nothing could be tuned, so that the call goes on
    and raises what that raises."""
    settings = resolve_settings().settings
    try:
        with opened(settings) as store:
            return _tuned_in(store, target, settings)
    except StoreError as error:  # a full disk, say: no reason not to run
        say_once(f"results will not be saved: {error}")
        store = MemoryStore()
        result = error.result if isinstance(error, StoreLostError) else None
        if result is not None:
            store.put_workload(result.run.workload)
            store.append(result.trials)
        return _tuned_in(store, target, settings)


def _tuned_in(store: Store, target: ChoiceTarget, settings: Settings) -> str:
    try:
        result = tune(
            target,
            store=store,
            settings=settings,
            budget=target.alternatives.budget,
            plan=_plan(target),
            progress=False,
            mode="tune",
            confirm=False,
        )
    except TuningFailedError as failure:
        say_once(f"{failure}; calling '{target.alternatives.first}' anyway")
        return target.alternatives.first
    except HostLostError as lost:
        if lost.result is None:
            say_once(f"{target.name} was not tuned: {lost}; using '{target.alternatives.first}'")
            return target.alternatives.first
        result = lost.result
    finally:
        target.let_go()
    name = str(result.config[PARAMETER])
    if result.source == "waited":
        say_once(f"{target.name} is not tuned yet: {result.notes[-1]}")
        raise BusyPick(name)
    _tell(target, result)
    return name


def _plan(target: ChoiceTarget) -> Plan | None:
    if target.gpu is None or target.cost == "eager":
        return None
    from whet.targets.triton.tuned import gpu_plan

    return gpu_plan()


def _tell(target: ChoiceTarget, result: Result) -> None:
    """What failed is stored; a wrong result is also said, since somebody should know."""
    for trial in result.trials:
        if trial.status.value == "wrong_result":
            name = trial.config[PARAMETER]
            say_once(
                f"{target.alternatives.title} does not use its implementation '{name}', whose "
                f"result is wrong: {trial.error}"
            )


def untuned_pick(target: ChoiceTarget, mode: Mode, *, quiet: bool = False) -> tuple[str, bool]:
    """Without measuring anything: a name, and whether it is the stored result of this very key.

    While a graph is captured, what counts eagerly is better than what is merely inherited.
    """
    lock = lock_for(target, mode)
    if lock is not None:
        choice = chosen_from(lock, target, mode)
        return str(choice.config[PARAMETER]), choice.source == "exact"
    try:
        with opened(resolve_settings().settings, mode) as store:
            if quiet and mode == "cached" and target.cost == "graph":
                other = target.with_cost("eager")
                own = exact_pick(target, target.workload(), store)
                eager = exact_pick(other, other.workload(), store) if own is None else None
                if eager is not None:
                    return str(eager.trial.config[PARAMETER]), False
            choice = choose(target, store=store, mode=mode)
    except StoreError as error:
        if mode == "require":
            raise not_tuned(target, target.workload(), mode, None) from error
        say_once(f"stored results will not be used: {error}")
        choice = first_choice(target, "the store cannot be read; using the first implementation")
    return str(choice.config[PARAMETER]), choice.source == "exact"
