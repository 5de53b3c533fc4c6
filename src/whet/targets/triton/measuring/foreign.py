"""Benchmark functions of the user's own: honoured as they are, after a parallel build."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from whet.builds import Builder, BuildResult, Job
from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Run, Stop
from whet.core.status import Status
from whet.core.timing import Method, Summary, Timing
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.engine.recall.known import start_after
from whet.store import Store
from whet.targets.triton import device
from whet.targets.triton.call import Call
from whet.targets.triton.compiler.capture import ready_to_fork
from whet.targets.triton.compiler.compile import compile_kernel
from whet.targets.triton.compiler.launcher import launcher_class
from whet.targets.triton.configs import Menu
from whet.targets.triton.packed.serving import active_binary_caches, packed_for
from whet.targets.triton.policy import settings_for


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


FOREIGN = Method("do_bench")


def apart(workload: Workload) -> Workload:
    """The workload that a user's own benchmark is kept under."""
    return replace(workload, toolchain=FrozenMap({**workload.toolchain, "timer": FOREIGN.timer}))


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
