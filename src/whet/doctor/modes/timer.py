"""The timer of models on a GPU."""

from __future__ import annotations

from whet.measure.timer import Reading, Runnable, Warm
from whet.targets.choice.cost import EagerTimer


class GpuModelTimer:
    """Calls from the host, one after another, as `EagerTimer` takes them. It is no `CpuTimer`: what
    CUDA and Triton keep running in the process does not disturb it."""

    name = EagerTimer.name

    def __init__(self) -> None:
        self._timer = EagerTimer()

    def warm(self, run: Runnable) -> Warm:
        return self._timer.warm(run)

    def measure(self, run: Runnable, samples: int, warm: Warm) -> Reading:
        return self._timer.measure(run, samples, warm)
