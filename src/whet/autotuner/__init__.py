"""The small class API for callables: every config timed, the best one kept and cached."""

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
from whet.core.errors import TuningFailedError

__all__ = [
    "FP8_GEMM_CONFIGS",
    "GATED_MLP_CONFIGS",
    "RMSNORM_ROPE_CONFIGS",
    "ConfigCache",
    "KernelMetrics",
    "TritonAutoTuner",
    "TuningFailedError",
    "TuningResult",
    "compute_elementwise_metrics",
    "compute_gemm_metrics",
    "filter_valid_configs",
    "generate_configs",
    "get_default_config",
]
