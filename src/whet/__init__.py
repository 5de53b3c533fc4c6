"""Whet: an autotuner for kernels that can stay switched on in production.

    whet.Space(…)          what may be chosen
    whet.function(…)       a Python callable, made tunable
    whet.native(…)         a C function, made tunable
    whet.schedule(…)       an MLIR program, whose schedule is tuned
    whet.autotune(…)       in place of triton.autotune; whet.install() for kernels of others,
                           which whet.installed() lists
    whet.warmup(step)      tunes every kernel of a program at once
    whet.choice({…})       one function with several implementations; whet.cost(…) says whether
                           eager calls or CUDA graphs count
    whet.tune(target)      finds the fastest config and remembers it
    whet.choose(target)    what is known already, without tuning
    whet.refine(target)    the same, and better between the calls to come
    whet.mode(…)           whether calls may tune: tune, cached, require, off, record
    whet.digest()          one hash of all choices in force; ranks compare theirs
    whet.unlocked()        choices that the lock file did not make
    whet.doctor(model, x)  why torch.compile is not faster, and which mode to use
    whet.preload(bundle)   kernels ready before the first request; whet.sealed() then reports
                           every kernel that would still be compiled
    whet.TritonAutoTuner   a small class API for callables in this process

Names are imported when first used: importing whet is quick and quiet.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from whet._version import __version__

if TYPE_CHECKING:
    from whet.autotuner.cache import ConfigCache
    from whet.autotuner.configs import (
        FP8_GEMM_CONFIGS,
        GATED_MLP_CONFIGS,
        RMSNORM_ROPE_CONFIGS,
        filter_valid_configs,
        generate_configs,
        get_default_config,
    )
    from whet.autotuner.metrics import (
        KernelMetrics,
        compute_elementwise_metrics,
        compute_gemm_metrics,
    )
    from whet.autotuner.tuner import TritonAutoTuner, TuningResult
    from whet.core.budget import Budget
    from whet.core.config import Config
    from whet.core.errors import (
        BudgetError,
        NotTunedError,
        RanksDifferError,
        SpaceError,
        StoreError,
        TuningFailedError,
        UnforeseenCompileError,
        UsageError,
        WhetError,
    )
    from whet.core.run import Choice, Result
    from whet.core.space import Categorical, Ordered, Permutation, Space
    from whet.core.status import Status
    from whet.core.trial import Trial
    from whet.doctor.checkup import doctor
    from whet.doctor.finding import Diagnosis
    from whet.engine.fallback.background import Refinement, refine
    from whet.engine.fallback.mode import mode
    from whet.engine.fallback.policy import choose
    from whet.engine.lockfile.comparing import digest
    from whet.engine.lockfile.in_force import unlocked
    from whet.engine.recovery.interrupt import (
        DeviceLostError,
        HostLostError,
        Interrupted,
        StoreLostError,
    )
    from whet.engine.tuning import tune
    from whet.store import open_store
    from whet.targets.choice.choice import choice
    from whet.targets.choice.cost import cost
    from whet.targets.function import function
    from whet.targets.native.target import native
    from whet.targets.schedule.target import schedule
    from whet.targets.triton.decorator import autotune
    from whet.targets.triton.install import install, installed, uninstall
    from whet.targets.triton.jit.preloading import Preloaded, preload
    from whet.targets.triton.jit.sealing import Seal, sealed
    from whet.targets.triton.warming.warmup import Warmup, warmup

_HOMES = {
    "Budget": "whet.core.budget",
    "BudgetError": "whet.core.errors",
    "Categorical": "whet.core.space",
    "Choice": "whet.core.run",
    "Config": "whet.core.config",
    "ConfigCache": "whet.autotuner.cache",
    "DeviceLostError": "whet.engine.recovery.interrupt",
    "Diagnosis": "whet.doctor.finding",
    "FP8_GEMM_CONFIGS": "whet.autotuner.configs",
    "GATED_MLP_CONFIGS": "whet.autotuner.configs",
    "Interrupted": "whet.engine.recovery.interrupt",
    "KernelMetrics": "whet.autotuner.metrics",
    "NotTunedError": "whet.core.errors",
    "Ordered": "whet.core.space",
    "Permutation": "whet.core.space",
    "Preloaded": "whet.targets.triton.jit.preloading",
    "RMSNORM_ROPE_CONFIGS": "whet.autotuner.configs",
    "RanksDifferError": "whet.core.errors",
    "Refinement": "whet.engine.fallback.background",
    "Result": "whet.core.run",
    "Seal": "whet.targets.triton.jit.sealing",
    "Space": "whet.core.space",
    "SpaceError": "whet.core.errors",
    "Status": "whet.core.status",
    "StoreError": "whet.core.errors",
    "HostLostError": "whet.engine.recovery.interrupt",
    "StoreLostError": "whet.engine.recovery.interrupt",
    "Trial": "whet.core.trial",
    "TritonAutoTuner": "whet.autotuner.tuner",
    "TuningFailedError": "whet.core.errors",
    "TuningResult": "whet.autotuner.tuner",
    "UnforeseenCompileError": "whet.core.errors",
    "UsageError": "whet.core.errors",
    "Warmup": "whet.targets.triton.warming.warmup",
    "WhetError": "whet.core.errors",
    "autotune": "whet.targets.triton.decorator",
    "choice": "whet.targets.choice.choice",
    "choose": "whet.engine.fallback.policy",
    "compute_elementwise_metrics": "whet.autotuner.metrics",
    "compute_gemm_metrics": "whet.autotuner.metrics",
    "cost": "whet.targets.choice.cost",
    "digest": "whet.engine.lockfile.comparing",
    "doctor": "whet.doctor.checkup",
    "filter_valid_configs": "whet.autotuner.configs",
    "function": "whet.targets.function",
    "generate_configs": "whet.autotuner.configs",
    "get_default_config": "whet.autotuner.configs",
    "install": "whet.targets.triton.install",
    "installed": "whet.targets.triton.install",
    "mode": "whet.engine.fallback.mode",
    "native": "whet.targets.native.target",
    "open_store": "whet.store",
    "preload": "whet.targets.triton.jit.preloading",
    "refine": "whet.engine.fallback.background",
    "schedule": "whet.targets.schedule.target",
    "sealed": "whet.targets.triton.jit.sealing",
    "tune": "whet.engine.tuning",
    "uninstall": "whet.targets.triton.install",
    "unlocked": "whet.engine.lockfile.in_force",
    "warmup": "whet.targets.triton.warming.warmup",
}

__all__ = [
    "FP8_GEMM_CONFIGS",
    "GATED_MLP_CONFIGS",
    "RMSNORM_ROPE_CONFIGS",
    "Budget",
    "BudgetError",
    "Categorical",
    "Choice",
    "Config",
    "ConfigCache",
    "DeviceLostError",
    "Diagnosis",
    "HostLostError",
    "Interrupted",
    "KernelMetrics",
    "NotTunedError",
    "Ordered",
    "Permutation",
    "Preloaded",
    "RanksDifferError",
    "Refinement",
    "Result",
    "Seal",
    "Space",
    "SpaceError",
    "Status",
    "StoreError",
    "StoreLostError",
    "Trial",
    "TritonAutoTuner",
    "TuningFailedError",
    "TuningResult",
    "UnforeseenCompileError",
    "UsageError",
    "Warmup",
    "WhetError",
    "__version__",
    "autotune",
    "choice",
    "choose",
    "compute_elementwise_metrics",
    "compute_gemm_metrics",
    "cost",
    "digest",
    "doctor",
    "filter_valid_configs",
    "function",
    "generate_configs",
    "get_default_config",
    "install",
    "installed",
    "mode",
    "native",
    "open_store",
    "preload",
    "refine",
    "schedule",
    "sealed",
    "tune",
    "uninstall",
    "unlocked",
    "warmup",
]


if os.environ.get("WHET_JIT") or os.environ.get("WHET_PRELOAD"):
    import_module("whet.targets.triton.jit.starting").start()


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'whet' has no attribute '{name}'")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
