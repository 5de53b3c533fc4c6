"""The tuning behind a call, with all that Triton's users expect around it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from whet.core.errors import StoreError, TargetError, TuningFailedError
from whet.core.status import Status
from whet.engine.guard import DeviceLostError, HostLostError, StoreLostError
from whet.engine.settings import Settings, resolve_settings
from whet.engine.tuning import tune
from whet.targets.triton.call import Call, out_of_resources
from whet.targets.triton.fallback.busy import BusyElsewhere
from whet.targets.triton.policy import settings_for
from whet.targets.triton.stores import opened
from whet.targets.triton.target import TritonTarget
from whet.targets.triton.tritons import printing, quantiles_ms
from whet.targets.triton.warming.active import ActiveWarmup, active
from whet.targets.triton.warn import say_once

if TYPE_CHECKING:
    from whet.core.mode import Effort
    from whet.core.run import Result
    from whet.core.timing import Timing
    from whet.core.trial import Trial
    from whet.engine.plan import Plan
    from whet.store import Store


def gpu_plan() -> Plan:
    """From a full queue a first launch reads at most a fifth longer than later ones (seen on an
    H200), so that it tells who is hopeless. Short kernels now and then read a tenth too long twice
    in a row, and launches that find nothing of the one before differ by 3 or 4 %, so that a duel
    takes longer."""
    from whet.engine.plan import Plan
    from whet.measure.racing.policy import DuelPolicy, RacePolicy

    return Plan(
        race=RacePolicy(hopeless_warm_up=1.5, warm_up_slack_ns=3_000.0, second_visit=1.15),
        duel=DuelPolicy(max_rounds=45),
    )


@dataclass(frozen=True)
class _Found:
    """`measured` says whether anything was measured for it, in the run of `run_id`; `trials` are
    all that is known, by config."""

    best: Any
    measured: bool
    run_id: str
    trials: dict[str, Trial]


def tuned(
    tuner: Any, call: Call, key: Mapping[str, Any], configs: Sequence[Any]
) -> tuple[Any, dict[Any, list[float]], bool]:
    """The best config, the timings of all, and whether anything was measured for it."""
    settings = settings_for(tuner)
    target = TritonTarget(call, configs, key, settings)
    if target.workload().id in tuner.whet_waited:  # one call that waits in vain is enough
        settings = replace(settings, agree_wait_s=0.0)
    try:
        with opened(settings) as store:
            found = _tuned_in(store, target, settings)
    except StoreError as error:  # a full disk, say: no reason not to run the kernel
        say_once(f"results will not be saved: {error}")
        tuner.whet_lost = error
        found = _tuned_in(_so_far(error), target, settings)
    by_config = {config: found.trials.get(target.menu.plain(config).id) for config in configs}
    _tell(call, by_config, found.run_id)
    hopeless = by_config[found.best]
    if hopeless is not None and (refusal := out_of_resources(hopeless.error)) is not None:
        tuner.pre_hook(call.full(found.best), reset_only=True)
        raise refusal  # what a launch would say, without compiling it first
    timings = {config: _quantiles(trial) for config, trial in by_config.items()}
    return found.best, timings, found.measured


def _so_far(error: StoreError) -> Store:
    """In memory, what was measured before the store was lost: it need not be measured again."""
    from whet.store import MemoryStore

    store = MemoryStore()
    result = error.result if isinstance(error, StoreLostError) else None
    if result is not None:
        store.put_workload(result.run.workload)
        store.append(result.trials)
    return store


def _tuned_in(store: Store, target: TritonTarget, settings: Settings) -> _Found:
    """Leaves the arguments as they were, however it ends."""
    try:
        return _outcome(store, target, settings)
    except DeviceLostError:
        target.call.let_go()  # no copy can be put back any more
        raise
    finally:
        target.call.restore()
        target.call.let_go()


def _outcome(store: Store, target: TritonTarget, settings: Settings) -> _Found:
    """What to launch, also where nothing could be tuned: a call goes on, as Triton's own does."""
    events = target.call.tuner.whet_events
    try:
        result = _tune(store, target, settings)
    except (TuningFailedError, TargetError) as failure:
        if events is not None and isinstance(failure, TargetError):
            raise  # who asks for a tuning wants to know
        # Triton's own way to fail: the first config's launch says what is wrong.
        first = target.space.first
        assert first is not None
        trials = _trials(store, target, None)
        if events is None and not _launch_says(trials.get(first.id)):
            say_once(f"{failure}; using the first config anyway")
        return _Found(target.menu.by_id[first.id], True, _newest_run(store, target), trials)
    except HostLostError as lost:
        if events is not None:
            raise
        best, trials = _best_so_far(target, lost), _trials(store, target, lost.result)
        return _Found(best, True, _newest_run(store, target), trials)
    best, trials = target.menu.by_id[result.config.id], _trials(store, target, result)
    return _Found(best, result.source == "tuned", result.run.id, trials)


def _tune(store: Store, target: TritonTarget, settings: Settings) -> Result:
    tuner, workload_id = target.call.tuner, target.workload().id
    program = active()
    result = tune(
        target,
        store=store,
        settings=settings,
        search=tuner.whet_search if program is None else program.search(tuner.whet_search),
        budget=tuner.whet_budget if program is None else program.budget(tuner.whet_budget),
        effort=_effort(tuner, program),
        plan=gpu_plan,
        transfer=tuner.whet_transfer,
        on_event=printing(tuner, target.menu.by_id, tuner.whet_events),
        progress=False,
        mode="tune",
        # A call uses what there is; who asks for a tuning wants it done.
        confirm=program is not None or tuner.whet_events is not None,
    )
    tuner.whet_result = result
    if program is not None:
        program.tuned(target, result)
    if result.source == "waited":
        if workload_id not in tuner.whet_waited:
            say_once(f"{target.name} is not tuned yet: {result.notes[-1]}")
        tuner.whet_waited.add(workload_id)
        raise BusyElsewhere(target.menu.by_id[result.config.id])
    tuner.whet_waited.discard(workload_id)
    return result


def _effort(tuner: Any, program: ActiveWarmup | None) -> Effort | None:
    """The kernel's own, else that of the warm-up it is part of."""
    own: Effort | None = getattr(tuner, "whet_effort", None)
    return own if program is None else program.effort(own)


def _newest_run(store: Store, target: TritonTarget) -> str:
    return store.runs(target.workload().id)[0].id


def _trials(store: Store, target: TritonTarget, result: Result | None) -> dict[str, Trial]:
    """All that is known: the store has more than a run that knew something beforehand."""
    own = () if result is None or result.known else result.trials
    return {trial.config.id: trial for trial in own or store.trials(target.workload().id)}


def _best_so_far(target: TritonTarget, lost: HostLostError) -> Any:
    """For as long as this process lives: asking the machine again at every call would slow them."""
    config = target.space.first if lost.result is None else lost.result.config
    assert config is not None
    what = "the author's first config" if lost.result is None else "the best so far"
    say_once(f"{target.name} was not tuned: {lost}. Using [{config}], {what}")
    return target.menu.by_id[config.id]


def _launch_says(trial: Trial | None) -> bool:
    """Whether a launch of the config would fail, and with more to read than we have here."""
    return trial is not None and trial.status in (Status.BUILD_ERROR, Status.RESOURCES)


def _tell(call: Call, trials: Mapping[Any, Trial | None], run_id: str) -> None:
    """Hooks hear of what was refused in this run, and people of what they should know."""
    for config, trial in trials.items():
        if trial is None or trial.run_id != run_id:
            continue
        if trial.status is Status.RESOURCES:
            call.refused(config, trial.error)
    for note in call.notes:
        say_once(note)


def by_own_benchmark(
    tuner: Any, call: Call, key: Mapping[str, Any], configs: Sequence[Any]
) -> dict[Any, list[float]]:
    """What the user's own benchmark says of each config, which is stored as that."""
    from whet.targets.triton.foreign import benchmark_with, keep

    if call.bits is not None:
        say_once(f"{tuner.base_fn.__name__} has its own benchmark, so bits are not compared")
    timings = benchmark_with(tuner, call, configs)
    target = TritonTarget(call, list(timings), key)
    try:
        with opened(resolve_settings().settings) as store:
            keep(store, target.workload(), target.menu, timings)
    except StoreError as error:
        say_once(f"results will not be saved: {error}")
    return timings


def _quantiles(trial: Trial | None) -> list[float]:
    """Milliseconds at the median, the fifth and the fourth fifth, as Triton keeps them."""
    timing: Timing | None = None if trial is None else trial.timing
    if timing is None:
        return [math.inf] * 3
    if timing.foreign is not None:
        return [timing.median_ns / 1e6, timing.foreign.low_ns / 1e6, timing.foreign.high_ns / 1e6]
    return quantiles_ms(timing.samples)
