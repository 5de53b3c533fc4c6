"""For loops of others over `_bench`: everything is built at once, then each config is timed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.targets.triton import device
from whet.targets.triton.compiler.capture import identified_request
from whet.targets.triton.keys import refuse_conflicts, workload_key
from whet.targets.triton.policy import settings_for
from whet.targets.triton.tritons import quantiles_ms, stock_bench
from whet.targets.triton.warn import say_once

# What is stored is not measured, so the rest is imported where it is used.
if TYPE_CHECKING:
    from whet.targets.triton.call import Call

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
        from whet.targets.triton.call import Call

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
            from whet.targets.triton.configs import Menu
            from whet.targets.triton.measuring.foreign import build_all

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
    from whet.engine.target import BenchLimits
    from whet.measure import Visit
    from whet.targets.triton.target import TritonTarget

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
