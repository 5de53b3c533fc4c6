"""What is Triton's own: methods of its `Autotuner` as they were before `whet.install()` put others
there, and the form in which it keeps timings."""

from __future__ import annotations

from collections.abc import Sequence

from triton.runtime import autotuner as stock

stock_init = stock.Autotuner.__init__
stock_bench = stock.Autotuner._bench
stock_run = stock.Autotuner.run
stock_getitem = stock.Autotuner.__getitem__


def quantiles_ms(samples_ns: Sequence[float]) -> list[float]:
    """Milliseconds at the median, the fifth and the fourth fifth."""
    ordered = sorted(samples_ns)
    last = len(ordered) - 1
    return [ordered[round(last * share)] / 1e6 for share in (0.5, 0.2, 0.8)]
