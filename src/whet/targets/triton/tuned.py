"""The tuning behind a call, with all that Triton's users expect around it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from whet.core.errors import StoreError, TuningFailedError
from whet.core.run import Result
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.engine.plan import Plan
from whet.engine.recovery.interrupt import DeviceLostError, HostLostError, StoreLostError
from whet.engine.settings import Settings, resolve_settings
from whet.engine.tuning import tune
from whet.measure import DuelPolicy, RacePolicy
from whet.store import MemoryStore, Store, store_path
from whet.targets.triton.call import Call, out_of_resources
from whet.targets.triton.measuring.foreign import keep
from whet.targets.triton.surroundings import opened, say_once, temporary
from whet.targets.triton.target import TritonTarget

# From a full queue a first launch reads at most a fifth longer than later ones (seen on an H200),
# so that it tells who is hopeless. Short kernels now and then read a tenth too long twice in a row,
# and launches that find nothing of the one before differ by 3 or 4 %, so that a duel takes longer.
GPU_PLAN = Plan(
    race=RacePolicy(hopeless_warm_up=1.5, warm_up_slack_ns=3_000.0, second_visit=1.15),
    duel=DuelPolicy(max_rounds=45),
)


class BusyElsewhere(Exception):
    """Another process has been tuning the same for too long; `config` is to be used meanwhile."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.config = config


def tuned(
    tuner: Any, call: Call, key: Mapping[str, Any], configs: Sequence[Any]
) -> tuple[Any, dict[Any, list[float]], bool]:
    """The best config, the timings of all, and whether anything was measured for it."""
    settings = resolve_settings().settings
    path = store_path(settings.store)
    locks = (path.parent if path else temporary()) / "locks"
    target = TritonTarget(call, configs, key, tuner.whet_timer, locks)
    if target.workload().id in tuner.whet_waited:  # one call that waits in vain is enough
        settings = replace(settings, agree_wait_s=0.0)
    try:
        with opened(settings) as store:
            found = _tuned_in(tuner, store, target, settings)
    except StoreError as error:  # a full disk, say: no reason not to run the kernel
        say_once(f"whet does not remember: {error}")
        tuner.whet_lost = error
        found = _tuned_in(tuner, _so_far(error), target, settings)
    best, measured, run_id, trials = found
    by_config = {config: trials.get(target.menu.plain(config).id) for config in configs}
    _tell(call, by_config, run_id)
    hopeless = by_config[best]
    if hopeless is not None and (refusal := out_of_resources(hopeless.error)) is not None:
        tuner.pre_hook(call.full(best), reset_only=True)
        raise refusal  # what a launch would say, without compiling it first
    return best, {c: _quantiles(trial) for c, trial in by_config.items()}, measured


def _so_far(error: StoreError) -> Store:
    """In memory, what was measured before the store was lost: it need not be measured again."""
    store = MemoryStore()
    result = error.result if isinstance(error, StoreLostError) else None
    if result is not None:
        store.put_workload(result.run.workload)
        store.append(result.trials)
    return store


def _tuned_in(
    tuner: Any, store: Store, target: TritonTarget, settings: Settings
) -> tuple[Any, bool, str, dict[str, Trial]]:
    """The best config, whether anything was measured, in which run, and all that is known."""
    workload_id = target.workload().id
    result: Result | None = None
    failure: TuningFailedError | None = None
    try:
        result = tune(
            target,
            store=store,
            settings=settings,
            search=tuner.whet_search,
            budget=tuner.whet_budget,
            plan=GPU_PLAN,
            transfer=tuner.whet_transfer,
            on_event=tuner.whet_events,
            mode="tune",
        )
        tuner.whet_result = result
        if result.source == "waited":
            if workload_id not in tuner.whet_waited:
                say_once(f"{target.name} is not tuned yet: {result.notes[-1]}")
            tuner.whet_waited.add(workload_id)
            raise BusyElsewhere(target.menu.triton(result.config))
        tuner.whet_waited.discard(workload_id)
        best, measured = target.menu.triton(result.config), result.source == "tuned"
        run_id = result.run.id
    except TuningFailedError as error:
        # Triton's own way to fail: the first config's launch says what is wrong.
        failure = error
        first = target.space.first
        assert first is not None
        best, measured = target.menu.triton(first), True
        run_id = store.runs(workload_id)[0].id
    except HostLostError as lost:
        if tuner.whet_events is not None:  # who asks for a tuning wants to know
            raise
        result = lost.result
        best, measured, run_id = _best_so_far(target, lost), True, store.runs(workload_id)[0].id
    except DeviceLostError:
        target.call.let_go()  # no copy can be put back any more
        raise
    finally:
        target.call.restore()
        target.call.let_go()
    found = result.trials if result is not None and not result.known else None
    trials = {t.config.id: t for t in found or store.trials(workload_id)}
    heard = tuner.whet_events is not None or _launch_says(trials.get(target.menu.plain(best).id))
    if failure is not None and not heard:
        say_once(f"{failure}; it is used all the same")
    return best, measured, run_id, trials


def _best_so_far(target: TritonTarget, lost: HostLostError) -> Any:
    """For as long as this process lives: asking the machine again at every call would slow them."""
    config = target.space.first if lost.result is None else lost.result.config
    assert config is not None
    what = "the author's first config" if lost.result is None else "the best so far"
    say_once(f"{target.name} is not tuned: {lost}. [{config}] is used, {what}")
    return target.menu.triton(config)


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


def keep_foreign(
    tuner: Any, call: Call, key: Mapping[str, Any], timings: Mapping[Any, Sequence[float]]
) -> None:
    target = TritonTarget(call, list(timings), key, tuner.whet_timer, temporary())
    try:
        with opened(resolve_settings().settings) as store:
            keep(store, target.workload(), target.menu, timings)
    except StoreError as error:
        say_once(f"whet does not remember: {error}")


def _quantiles(trial: Trial | None) -> list[float]:
    """Milliseconds at the median, the fifth and the fourth fifth, as Triton keeps them."""
    timing: Timing | None = None if trial is None else trial.timing
    if timing is None:
        return [math.inf] * 3
    if timing.foreign is not None:
        return [timing.median_ns / 1e6, timing.foreign.low_ns / 1e6, timing.foreign.high_ns / 1e6]
    ordered = sorted(timing.samples)
    last = len(ordered) - 1
    return [ordered[round(last * share)] / 1e6 for share in (0.5, 0.2, 0.8)]
