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
    whet.bench(fn, …)      how long a call takes, or several side by side
    whet.explore(result)   its trials in a notebook, to brush
    whet.mode(…)           whether calls may tune: tune, cached, require, off, record
    whet.doctor(model, x)  why torch.compile is not faster, and which mode to use
    whet.lock              choices written down: digest() is one hash of all in force, which ranks
                           compare; unlocked() are those that the lock file did not make
    whet.serving           preload(bundle): kernels ready before the first request; sealed() then
                           reports every kernel that would still be compiled
    whet.autotuner         a small class API for callables in this process
    whet.results           what functions return; whet.errors, what they may raise

Names are imported when first used: importing whet is quick and quiet.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from whet._version import __version__ as __version__

if TYPE_CHECKING:
    from whet import autotuner as autotuner
    from whet import errors as errors
    from whet import lock as lock
    from whet import results as results
    from whet import serving as serving
    from whet.autotuner import *  # noqa: F403
    from whet.core.budget import Budget as Budget
    from whet.core.config import Config as Config
    from whet.core.space import Categorical as Categorical
    from whet.core.space import Ordered as Ordered
    from whet.core.space import Permutation as Permutation
    from whet.core.space import Space as Space
    from whet.doctor.checkup import doctor as doctor
    from whet.engine.fallback.background import refine as refine
    from whet.engine.fallback.mode import mode as mode
    from whet.engine.fallback.untuned import choose as choose
    from whet.engine.tuning import tune as tune
    from whet.errors import *  # noqa: F403
    from whet.explorer.notebook import explore as explore
    from whet.lock import *  # noqa: F403
    from whet.results import *  # noqa: F403
    from whet.serving import *  # noqa: F403
    from whet.store import open_store as open_store
    from whet.targets.benching import bench as bench
    from whet.targets.choice.choice import choice as choice
    from whet.targets.choice.keys import cost as cost
    from whet.targets.function import function as function
    from whet.targets.native.target import native as native
    from whet.targets.schedule.target import schedule as schedule
    from whet.targets.triton.decorator import autotune as autotune
    from whet.targets.triton.install import install as install
    from whet.targets.triton.install import installed as installed
    from whet.targets.triton.install import uninstall as uninstall
    from whet.targets.triton.warming.warmup import warmup as warmup


def _by_name(homes: dict[str, str]) -> dict[str, str]:
    return {name: home for home, names in homes.items() for name in names.split()}


_HOMES = _by_name(
    {
        "whet.core.budget": "Budget",
        "whet.core.config": "Config",
        "whet.core.space": "Categorical Ordered Permutation Space",
        "whet.doctor.checkup": "doctor",
        "whet.engine.fallback.background": "refine",
        "whet.engine.fallback.mode": "mode",
        "whet.engine.fallback.untuned": "choose",
        "whet.engine.tuning": "tune",
        "whet.explorer.notebook": "explore",
        "whet.store": "open_store",
        "whet.targets.benching": "bench",
        "whet.targets.choice.choice": "choice",
        "whet.targets.choice.keys": "cost",
        "whet.targets.function": "function",
        "whet.targets.native.target": "native",
        "whet.targets.schedule.target": "schedule",
        "whet.targets.triton.decorator": "autotune",
        "whet.targets.triton.install": "install installed uninstall",
        "whet.targets.triton.warming.warmup": "warmup",
    }
)
_MODULES = ("autotuner", "errors", "lock", "results", "serving")

# What was here once, and may still be used from here.
_FORMER = _by_name(
    {
        "whet.autotuner": "ConfigCache FP8_GEMM_CONFIGS GATED_MLP_CONFIGS KernelMetrics "
        "RMSNORM_ROPE_CONFIGS TritonAutoTuner TuningResult compute_elementwise_metrics "
        "compute_gemm_metrics filter_valid_configs generate_configs get_default_config",
        "whet.errors": "BudgetError DeviceLostError HostLostError Interrupted NotTunedError "
        "RanksDifferError SpaceError StoreError StoreLostError TuningFailedError "
        "UnforeseenCompileError UsageError WhetError",
        "whet.lock": "digest unlocked",
        "whet.results": "Choice Diagnosis Refinement Result Status Trial Warmup",
        "whet.serving": "Preloaded Seal preload sealed",
    }
)

__all__ = sorted(["__version__", *_MODULES, *_HOMES])

if os.environ.get("WHET_JIT") or os.environ.get("WHET_PRELOAD"):
    import_module("whet.targets.triton.jit.starting").start()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"whet.{name}")
    home = _HOMES.get(name) or _FORMER.get(name)
    if home is None:
        raise AttributeError(f"module 'whet' has no attribute '{name}'")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
