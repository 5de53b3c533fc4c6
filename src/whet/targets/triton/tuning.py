"""The tuning behind a call, with all that Triton's users expect around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from triton.runtime.errors import OutOfResources

from whet.core.errors import StoreError, TargetError, TuningFailedError
from whet.core.mode import Mode
from whet.core.status import Status
from whet.engine.fallback.calls import (
    BusyElsewhere,
    choice_without_tuning,
    in_store_or_memory,
    opened,
)
from whet.engine.fallback.untuned import choose
from whet.engine.guard import DeviceLostError, HostLostError
from whet.engine.log import say_once
from whet.engine.settings import Settings, resolve_settings
from whet.engine.tuning import tune
from whet.targets.triton.call import Call, out_of_resources
from whet.targets.triton.dispatch import quantiles_ms
from whet.targets.triton.keys import plain_config
from whet.targets.triton.policy import settings_for
from whet.targets.triton.target import TritonTarget
from whet.targets.triton.warming.active import ActiveWarmup, active

if TYPE_CHECKING:
    from whet.core.event import Event
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
    from whet.measure.racing.duel import DuelPolicy
    from whet.measure.racing.race import RacePolicy

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
    found = in_store_or_memory(
        settings,
        lambda store: _tuned_in(store, target, settings),
        lambda error: setattr(tuner, "whet_lost", error),
    )
    by_config = {config: found.trials.get(target.menu.plain(config).id) for config in configs}
    _tell(call, by_config, found.run_id)
    hopeless = by_config[found.best]
    if hopeless is not None and (refusal := out_of_resources(hopeless.error)) is not None:
        tuner.pre_hook(call.full(found.best), reset_only=True)
        raise refusal  # what a launch would say, without compiling it first
    timings = {config: _quantiles(trial) for config, trial in by_config.items()}
    return found.best, timings, found.measured


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


def untuned(target: TritonTarget, mode: Mode) -> tuple[Any, bool]:
    """Triton's config, and whether it is the stored result of this very key."""
    choice = choice_without_tuning(
        target, mode, "the store cannot be read; the author's first config"
    )
    return target.triton(choice.config), choice.source == "exact"


def while_capturing(target: TritonTarget) -> Any:
    """Where nothing can be tuned: the stored, the inherited, or the author's first config."""
    choice = choose(target, mode="cached")
    say_once(
        f"{target.name} cannot be tuned during CUDA graph capture; using "
        f"[{choice.config}]: {choice.reason}"
    )
    return target.triton(choice.config)


_UNTRIED = ("cached", "record")


def launch_another(
    tuner: Any,
    config: Any,
    refusal: OutOfResources,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    """Where the refused config was only a guess, launches the first other one that asks for no more
    than the device has. The same is used for later calls of this kind."""
    mode = tuner._mode_now()
    others = _others(tuner, mode, config, args, kwargs) if mode in _UNTRIED else None
    if others is None:
        raise refusal
    key, configs = others
    for other in configs:
        try:
            done = tuner._launch(other, args, kwargs)
        except OutOfResources:
            continue
        tuner._decisions.stopgaps[mode, key] = other
        tuner._remember(other, args, kwargs)
        say_once(_said(tuner.base_fn.__name__, config, other, refusal))
        return done
    raise refusal


def _said(kernel: str, config: Any, other: Any, refusal: OutOfResources) -> str:
    needs = f"needs {refusal.required} of {refusal.name}, and this GPU has {refusal.limit}"
    return (
        f"[{plain_config(config)}] of '{kernel}' {needs}; using [{plain_config(other)}] until the "
        "kernel is tuned"
    )


def _others(
    tuner: Any, mode: str, config: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, list[Any]] | None:
    """The key of this call and the rest of its configs; None where the config is no guess."""
    with tuner._tuning:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        try:
            _, key = tuner._keyed({**tuner.nargs, **kwargs})
            if tuner._decisions.stopgaps.get((mode, key)) is not config:
                return None
            return key, [one for one in tuner.prune_configs(kwargs) if one is not config]
        finally:
            tuner.nargs = None


class _NothingOnDisk(Exception):
    """Triton's own file of results has nothing for a key."""


def on_disk(tuner: Any, key: tuple[Any, ...], configs: Sequence[Any]) -> bool:
    """Whether Triton's own file has filled the cache; nothing is benchmarked otherwise."""

    def benchmark() -> None:
        raise _NothingOnDisk

    try:
        tuner.check_disk_cache(key, configs, benchmark)
    except _NothingOnDisk:
        return False
    return True


def printing(
    tuner: Any, by_id: Mapping[str, Any], events: Callable[[Event], None] | None
) -> Callable[[Event], None] | None:
    """`events`, and where Triton is to print what it tunes, its own lines of each config."""
    from triton import knobs

    if not knobs.autotuning.print:
        return events
    from whet.core.event import MeasureStarted, TrialFinished

    begun = set()

    def on_event(event: Event) -> None:
        if events is not None:
            events(event)
        trial = event.trial if isinstance(event, TrialFinished) and not event.known else None
        config = event.config if isinstance(event, MeasureStarted) else trial and trial.config
        if config is not None and config.id not in begun:
            begun.add(config.id)
            print(f"Autotuning kernel {tuner.base_fn.__name__} with config {by_id[config.id]}")
        if trial is not None and trial.status.failed:
            print(f"Autotuning failed with {trial.error}")

    return on_event


def announce(tuner: Any, key: tuple[Any, ...], jit: Any, from_disk: bool) -> None:
    """Triton's own lines, and its listener, once a key has a config."""
    from triton import knobs

    listener = getattr(getattr(knobs, "autotuning", None), "listener", None)
    if listener is not None:
        listener(
            fn=jit,
            key=key,
            best_config=tuner.cache[key],
            configs_timings=getattr(tuner, "configs_timings", None),
            duration=None if from_disk else tuner.bench_time,
            cache_hit=from_disk,
        )
    if knobs.autotuning.print and not from_disk:
        print(
            f"Triton autotuning for function {tuner.base_fn.__name__},\nwith key as {key},\n"
            f"finished after {tuner.bench_time:.2f}s,\n"
            f"best config selected: {tuner.cache[key]};"
        )
