"""Configs that nobody has tried may not fit the device; then the next one of the list is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton.runtime.errors import OutOfResources

from whet.targets.triton.configs import plain_config
from whet.targets.triton.warn import say_once

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
        tuner._stopgaps[mode, key] = other
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
            if tuner._stopgaps.get((mode, key)) is not config:
                return None
            return key, [one for one in tuner.prune_configs(kwargs) if one is not config]
        finally:
            tuner.nargs = None
