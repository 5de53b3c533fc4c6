"""A kernel under Triton's own `autotune`, with whet behind it and its file untouched."""

from __future__ import annotations

import copy
import warnings
from typing import Any

from triton.runtime import autotuner as stock

from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.offline.kernel import Kernel


def taken_over(value: Any) -> Kernel | None:
    """What the kernel would be had `whet.install()` come before its decorators; None where
    Triton's `autotune` is not among them. The object itself is left as it was."""
    wrappers: list[Any] = []
    layer = value
    while not isinstance(layer, stock.Autotuner):
        wrappers.append(layer)
        layer = getattr(layer, "fn", None)
        if layer is None:
            return None
    tuner = _ours(layer)
    launcher: Any = tuner
    for wrapper in reversed(wrappers):
        outside = copy.copy(wrapper)
        outside.fn = launcher
        launcher = outside
    return Kernel(launcher, tuner, stock=True)


def _ours(theirs: Any) -> Autotuner:
    own_pre, own_post = theirs.user_defined_pre_hook, theirs.user_defined_post_hook
    # Where warmup, rep or use_cuda_graph is given, Triton makes a benchmark of them itself.
    made = theirs.num_warmups is not None or theirs.num_reps is not None or theirs.use_cuda_graph
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # said when the file was loaded
        return Autotuner(
            theirs.fn,
            theirs.arg_names,
            theirs.configs,
            theirs.keys,
            theirs.reset_to_zero,
            theirs.restore_value,
            pre_hook=theirs.pre_hook if own_pre else None,
            post_hook=theirs.post_hook if own_post else None,
            prune_configs_by={
                "perf_model": theirs.perf_model,
                "top_k": theirs.configs_top_k,
                "early_config_prune": theirs.early_config_prune,
            },
            warmup=theirs.num_warmups,
            rep=theirs.num_reps,
            use_cuda_graph=theirs.use_cuda_graph,
            do_bench=None if made else theirs._do_bench,
            cache_results=theirs.cache_results,
        )
