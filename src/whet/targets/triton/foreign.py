"""Benchmark functions and loops over configs of the user's own, honoured after a parallel build."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whet.builds.builder import Builder
from whet.builds.job import BuildResult, Job
from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.run import Outcome, Run, Stop
from whet.core.status import Status
from whet.core.timing import Summary, Timing
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.engine.log import say_once
from whet.engine.recall import start_after
from whet.engine.target import BenchLimits
from whet.measure.bench.protocol import Visit
from whet.store import Store
from whet.targets.triton import device
from whet.targets.triton.call import Call
from whet.targets.triton.compiler.capture import identified_request, ready_to_fork
from whet.targets.triton.compiler.compile import compile_kernel, launcher_class
from whet.targets.triton.dispatch import quantiles_ms, stock_bench
from whet.targets.triton.keys import Menu, refuse_conflicts, workload_key
from whet.targets.triton.packed.portable import active_binary_caches, packed_for
from whet.targets.triton.policy import settings_for
from whet.targets.triton.target import FOREIGN, TritonTarget, apart


def benchmark_with(tuner: Any, call: Call, configs: Sequence[Any]) -> dict[Any, list[float]]:
    """Triton's own loop over configs, with everything compiled beforehand."""
    menu = Menu(configs)
    # A subclass with a `_bench` of its own builds when that is called.
    built = {} if getattr(tuner, "whet_builds_in_bench", False) else build_all(call, menu, configs)
    timings: dict[Any, list[float]] = {}
    try:
        for config in configs:
            result = built.get(menu.plain(config).id)
            if result is not None and result.status is Status.RESOURCES:
                call.refused(config, result.error)
                timings[config] = [math.inf] * 3
            else:
                timings[config] = tuner._bench(*call.args, config=config, **call.keywords)
    finally:
        call.restore()
    return timings


def keep(
    store: Store, workload: Workload, menu: Menu, timings: Mapping[Any, Sequence[float]]
) -> None:
    """Writes down what somebody else's benchmark said, as that and as nothing of ours.

    It is `apart`, so that no timing of whet's is ever compared with it.
    """
    run = Run(
        workload=apart(workload),
        space_id=menu.space.id,
        space_size=menu.space.count,
        search="grid",
        seed=0,
        outcome=Outcome.FINISHED,
        exhaustive=True,
        trials=len(timings),
        tried=len(timings),
        stopped=Stop.COMPLETE,
        started=start_after(store, apart(workload).id),
    )
    trials = [
        _foreign_trial(run, menu.plain(config), quantiles) for config, quantiles in timings.items()
    ]
    usable = [trial for trial in trials if trial.timing is not None]
    best = min(usable, key=lambda trial: trial.median_ns or math.inf, default=None)
    store.save_run(replace(run, best=None if best is None else best.config))
    store.append(trials)


def _foreign_trial(run: Run, config: Config, said: Any) -> Trial:
    """Triton asks for the median first, then the ends, in milliseconds; people return what they
    like, and only numbers can be kept."""
    listed = list(said) if isinstance(said, Iterable) else [said]
    numbers = [float(one) for one in listed if isinstance(one, int | float)]
    known = bool(numbers) and math.isfinite(numbers[0])
    ends = (min(numbers) * 1e6, max(numbers) * 1e6) if known else (0.0, 0.0)
    summary = Summary(numbers[0] * 1e6, *ends, "do_bench") if known else None
    return Trial(
        workload_id=run.workload.id,
        config=config,
        status=Status.OK if known else Status.RUN_ERROR,
        timing=None if summary is None else Timing((), FOREIGN.timer, foreign=summary),
        error="" if known else "the benchmark function returned no time for it",
        run_id=run.id,
        created=time.time(),
    )


def build_all(call: Call, menu: Menu, configs: Sequence[Any]) -> dict[str, BuildResult]:
    """Compiles everything at once; the results by the id of the config."""
    settings = settings_for(call.tuner)
    limits = device.limits(device.current_index())
    results: dict[str, BuildResult] = {}
    caches = active_binary_caches()
    with Builder(settings.jobs, "fork", settings.build_limit_s) as builder:
        for config in configs:
            request = call.request(config, limits)
            if request is not None:
                ready_to_fork(request.target)
                packed = packed_for(request, caches)
                job = Job(compile_kernel, (request, packed, launcher_class()))
                builder.submit(menu.plain(config), job)
        while builder.pending:
            for result in builder.ready(None):
                results[result.config.id] = result
    return results


# A loop of others compares medians once and has no duel of the best, so that each has to be good.
SAMPLES = 9

_NEVER = (math.inf,) * 3

_LOST = (Status.RESOURCES, Status.BUILD_TIMEOUT)


@dataclass
class OneByOne:
    """`ours`: nobody asked for a benchmark of another kind.

    `hopeless` says of each build, by identity, why it failed for want of time or resources. None is
    for the others, which are in Triton's cache by now, or fail here as they would without us.
    `keys` are those it was asked for.
    """

    ours: bool
    hopeless: dict[str, str | None] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)

    def bench(
        self, tuner: Any, args: tuple[Any, ...], config: Any, meta: Mapping[str, Any]
    ) -> list[float]:
        """Milliseconds at the median, the fifth and the fourth fifth, as Triton's `_bench` says."""
        refuse_conflicts(meta, [config])
        call = Call(tuner, args, meta)
        self.keys.add(str(_key(tuner, call)))
        why = self._built(tuner, call, config, meta)
        if why is not None:
            call.refused(config, why)
            return list(_NEVER)
        if not self.ours:
            said: list[float] = stock_bench(tuner, *args, config=config, **meta)
            return said
        return _timed(tuner, call, config)

    def _built(self, tuner: Any, call: Call, config: Any, meta: Mapping[str, Any]) -> str | None:
        """Why it cannot be used; all others that a loop may ask for are built with it."""
        fn, limits = tuner.fn, device.limits(device.current_index())

        def identity(one: Any) -> str | None:
            found = identified_request(fn, call.args, call.current(one), limits)
            return None if found is None else found[1]

        wanted = identity(config)
        if wanted is None:  # compiled in this process already
            return None
        if wanted not in self.hopeless:
            known = {id(one): (one, identity(one)) for one in _likely(tuner, config, meta)}
            missing = {key: one for one, key in known.values() if key and key not in self.hopeless}

            menu = Menu(list(missing.values()))
            results = build_all(call, menu, list(missing.values()))
            for key, one in missing.items():
                result = results.get(menu.plain(one).id)
                lost = result is not None and result.status in _LOST
                self.hopeless[key] = result.error if result is not None and lost else None
        return self.hopeless.get(wanted)


def _key(tuner: Any, call: Call) -> dict[str, Any]:
    passed = {name: v for name, v in call.named.items() if name in tuner.arg_names}
    return workload_key(tuner.keys, passed, tuner.whet_buckets)


def _likely(tuner: Any, config: Any, meta: Mapping[str, Any]) -> Sequence[Any]:
    """What is left of the configs after pruning; a search of its own may make up others. A pruning
    function may make new ones each time."""
    pruned = tuner.prune_configs(dict(meta)) if getattr(tuner, "nargs", None) is not None else ()
    wanted = config.all_kwargs()
    return pruned if any(one.all_kwargs() == wanted for one in pruned) else [config]


def _timed(tuner: Any, call: Call, config: Any) -> list[float]:
    settings = settings_for(tuner)
    target = TritonTarget(call, [config], _key(tuner, call), settings)
    plain = target.menu.plain(config)
    try:
        with target.bench(
            BenchLimits(isolate=settings.isolate, device_bytes=settings.device_memory_bytes)
        ) as bench:
            (answer,) = bench.measure(Visit(((plain, None),), SAMPLES, first=True))
    finally:
        call.restore()
        call.let_go()
    if isinstance(answer, ConfigFailure):
        if answer.status is not Status.RESOURCES:
            say_once(f"{target.name} failed with [{config}], which is left out: {answer.message}")
        return list(_NEVER)
    return quantiles_ms(answer.reading.samples)
