"""`whet.autotune`: the decorator, with Triton's arguments and ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton.runtime import autotuner as stock

from whet.core.budget import Budget
from whet.core.errors import UsageError
from whet.core.mode import Effort, Mode, checked_effort
from whet.engine.fallback.calls import checked_wait
from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.keys import captured_keys

if TYPE_CHECKING:
    from whet.targets.triton.checks import Check


def autotune(
    configs: Any = None,
    key: Any = None,
    prune_configs_by: Any = None,
    reset_to_zero: Any = None,
    restore_value: Any = None,
    pre_hook: Any = None,
    post_hook: Any = None,
    warmup: Any = None,
    rep: Any = None,
    use_cuda_graph: bool = False,
    do_bench: Any = None,
    cache_results: bool = False,
    *,
    search: Any = None,
    budget: Any = None,
    check: Check | None = None,
    inputs: Callable[..., Any] | None = None,
    space: Any = None,
    mode: Mode | None = None,
    buckets: Mapping[str, Any] | None = None,
    idle: bool = False,
    isolate: bool | None = None,
    effort: Effort | None = None,
    lock: str | Path | None = None,
    wait_limit: Any = None,
) -> Callable[[Any], Autotuner]:
    """Replaces `triton.autotune`, with the same arguments in the same order.

    `space` takes a `whet.Space` instead of a list of configs: the parameters `num_warps`,
    `num_stages`, `num_ctas` and `maxnreg` go to Triton, the others to the kernel. `search` and
    `budget` are as in `whet.tune`. `inputs` creates arguments from a key, for `whet tune`. `check`
    is a function from arguments by name to expected outputs by name, or "agree", which compares
    with the output of the first config; a config that differs is `wrong_result` and cannot win.
    With "bitwise" only configs can win that write bit for bit what the first config writes, with
    "deterministic" only those that write the same bits in every launch.
    `key` may also name a global or closure variable that the kernel captures; its values are then
    keys of one kernel instead of different sources. `mode` overrides the context and the settings
    for this kernel. `buckets` map many values of a key argument to one workload: `{"M": "pow2"}`, a
    list of upper bounds, or a function; the first call in a bucket is tuned. With `idle`, calls
    never wait for tuning: a few configs are raced between later calls, within `idle_share` of their
    time. With `isolate`, configs run in another process on copies of the arguments, so a crash, a
    hang or a broken CUDA context affects only that process. With `effort="quick"`, configs that are
    not expected to be worth their builds are left out. `lock` is a lock file, from which alone the
    modes `cached` and `require` then choose. `wait_limit` is how long calls wait for tunings, all
    together: after that, a new key takes the best of the nearest tuned one at once, and is tuned
    when it has been called so often that this would have paid. None uses the settings.
    """
    _refuse_wrong(configs, space, search, budget, check, inputs)
    own_effort = None if effort is None else checked_effort(effort)
    listed = configs if space is None else configs_of(space)

    def decorator(fn: Any) -> Autotuner:
        if not hasattr(fn, "arg_names"):
            raise UsageError(f"{fn!r} is not a Triton kernel; put @triton.jit below @whet.autotune")
        kind = _idle_kind() if idle else Autotuner
        claims = captured_keys(fn, key or (), fn.arg_names)
        tuner = kind(
            fn,
            fn.arg_names,
            listed,
            [name for name in key or () if name not in claims],
            reset_to_zero,
            restore_value,
            pre_hook=pre_hook,
            post_hook=post_hook,
            prune_configs_by=prune_configs_by,
            warmup=warmup,
            rep=rep,
            use_cuda_graph=use_cuda_graph,
            do_bench=do_bench,
            cache_results=cache_results,
            whet_search=search,
            whet_budget=budget,
            whet_inputs=inputs,
            whet_check=check,
            whet_mode=mode,
            whet_buckets=buckets,
            whet_isolate=isolate,
            whet_claims=claims,
            whet_wait_limit_s=None if wait_limit is None else checked_wait(wait_limit),
        )
        tuner.whet_effort = own_effort
        tuner.whet_lock = None if lock is None else str(lock)
        return tuner

    return decorator


def _idle_kind() -> type[Autotuner]:
    """Imported when asked for: it brings the race and its models with it."""
    from whet.targets.triton.background import IdleAutotuner

    return IdleAutotuner


def _refuse_wrong(
    configs: Any, space: Any, search: Any, budget: Any, check: Any, inputs: Any
) -> None:
    """Where it is written, and not at the first call."""
    if hasattr(configs, "arg_names"):
        raise UsageError("@whet.autotune needs arguments; use @whet.autotune(configs=[…], key=[…])")
    if configs and space is not None:
        raise UsageError("give either configs= or space=, not both")
    for config in configs if isinstance(configs, list | tuple) else ():
        if isinstance(config, Mapping):
            raise UsageError(f"{config!r} is not a config; use triton.Config({config!r})")
    if search is not None:
        from whet.search import check_search

        check_search(search)
    Budget.parse(budget)
    if check is not None and check != "agree" and not callable(check):
        from whet.measure.bench.bits import BIT_CHECKS

        if check not in BIT_CHECKS:
            names = ", ".join(f'"{name}"' for name in ("agree", *BIT_CHECKS))
            raise UsageError(f"check is {check!r}; give {names} or a reference function")
    if inputs is not None and not callable(inputs):
        raise UsageError(f"inputs is {inputs!r}; give a function from a key to arguments")


_TRITONS_OWN = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")


def configs_of(space: Any) -> list[Any]:
    """Every valid config of a `whet.Space`, or of what makes one, as a `triton.Config`."""
    from whet.core.space import Space

    space = space if isinstance(space, Space) else Space(space)
    return [
        stock.Config(
            {name: value for name, value in config.items() if name not in _TRITONS_OWN},
            **{name: config[name] for name in _TRITONS_OWN if name in config},
        )
        for config in space
    ]
