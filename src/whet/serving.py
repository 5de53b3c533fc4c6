"""Kernels that are ready before the first request, and a report of those that are not."""

from whet.targets.triton.jit.preloading import Preloaded, preload
from whet.targets.triton.jit.sealing import Seal, sealed

__all__ = ["Preloaded", "Seal", "preload", "sealed"]
