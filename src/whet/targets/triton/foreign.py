"""Benchmark functions of the user's own: honoured as they are, after a parallel build."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from whet.build import Builder, Job
from whet.core.status import Status
from whet.engine.settings import resolve_settings
from whet.targets.triton import device
from whet.targets.triton.call import Call
from whet.targets.triton.capture import ready_to_fork
from whet.targets.triton.compile import compile_kernel
from whet.targets.triton.configs import Menu


def benchmark_with(tuner: Any, call: Call, configs: Sequence[Any]) -> dict[Any, list[float]]:
    """Triton's own loop over configs, with everything compiled beforehand."""
    from triton.runtime.autotuner import Autotuner as Stock

    menu = Menu(configs)
    refused = _build_all(call, menu, configs)
    timings: dict[Any, list[float]] = {}
    try:
        for config in configs:
            text = refused.get(menu.plain(config).id)
            if text is not None:
                call.refused(config, text)
                timings[config] = [math.inf] * 3
            else:
                timings[config] = Stock._bench(tuner, *call.args, config=config, **call.keywords)
    finally:
        call.restore()
    return timings


def _build_all(call: Call, menu: Menu, configs: Sequence[Any]) -> dict[str, str]:
    """Compiles everything at once; says who was refused for want of resources."""
    settings = resolve_settings().settings
    limits = device.limits(device.current_index())
    refused: dict[str, str] = {}
    with Builder(settings.jobs, "fork", settings.build_limit_s) as builder:
        for config in configs:
            request = call.request(config, limits)
            if request is not None:
                ready_to_fork()
                builder.submit(menu.plain(config), Job(compile_kernel, (request,)))
        while builder.pending:
            for result in builder.ready(None):
                if result.status is Status.RESOURCES:
                    refused[result.config.id] = result.error
    return refused
