"""What the policy file says about a kernel, put in place before the kernel is first used."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal

from whet.engine.policy.finding import current_policy
from whet.engine.settings import Settings, resolve_settings
from whet.targets.triton import device
from whet.targets.triton.policy_fitting import AppliedPolicy, apply_rules


def settings_for(tuner: Any) -> Settings:
    """The process's settings, with what the policy says about this kernel."""
    settings = resolve_settings().settings
    applied: AppliedPolicy | None = getattr(tuner, "whet_policy", None)
    return replace(settings, **applied.overrides) if applied and applied.overrides else settings


def timing_of(tuner: Any) -> tuple[int, Literal["cold", "warm"], int | None, bool]:
    """What `device.timer` takes: the device, the state of its L2, how that is cleared, and whether
    launches are timed as CUDA graphs."""
    settings = settings_for(tuner)
    graph = bool(tuner.use_cuda_graph) or settings.cuda_graph
    return device.current_index(), settings.l2, settings.l2_bytes, graph


def apply_policy(tuner: Any, flags: Collection[str] = ()) -> None:
    """Once for each kernel. `flags` are settings that a command was given, which outrank rules.

    Raises `SettingsError` for a file that is wrong, and for a rule that names this kernel and does
    not fit it.
    """
    with tuner._tuning:
        if not tuner.whet_policy_due:
            return
        policy = current_policy()
        if policy is not None:
            apply_rules(tuner, policy, flags)
        tuner.whet_policy_due = False
