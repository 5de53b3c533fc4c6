"""The config of a call in a mode that does not tune."""

from __future__ import annotations

from typing import Any

from whet.core.errors import StoreError
from whet.core.mode import Mode
from whet.engine.fallback.policy import choose, chosen_from, first_choice, lock_for
from whet.engine.settings import resolve_settings
from whet.targets.triton.stores import opened
from whet.targets.triton.target import TritonTarget
from whet.targets.triton.warn import say_once


def untuned(target: TritonTarget, mode: Mode) -> tuple[Any, bool]:
    """Triton's config, and whether it is the stored result of this very key.

    Nothing is built or measured; with a lock file no store is opened. Under `require` raises
    `NotTunedError` without such a result; a store that cannot be read is a reason to use the first
    config in any other mode.
    """
    lock = lock_for(target, mode)
    if lock is not None:
        choice = chosen_from(lock, target, mode)
        return target.triton(choice.config), choice.source == "exact"
    try:
        with opened(resolve_settings().settings, mode) as store:
            choice = choose(target, store=store, mode=mode)
    except StoreError as error:
        if mode == "require":
            from whet.engine.fallback.missed import not_tuned

            raise not_tuned(target, target.workload(), mode, None) from error
        say_once(f"stored results will not be used: {error}")
        choice = first_choice(target, "the store cannot be read; the author's first config")
    return target.triton(choice.config), choice.source == "exact"


def while_capturing(target: TritonTarget) -> Any:
    """Where nothing can be tuned: the stored, the inherited, or the author's first config."""
    choice = choose(target, mode="cached")
    say_once(
        f"{target.name} cannot be tuned during CUDA graph capture; using "
        f"[{choice.config}]: {choice.reason}"
    )
    return target.triton(choice.config)
