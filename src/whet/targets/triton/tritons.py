"""Methods of Triton's own `Autotuner`, as they were before `whet.install()` put others there."""

from __future__ import annotations

from triton.runtime import autotuner as stock

stock_init = stock.Autotuner.__init__
stock_bench = stock.Autotuner._bench
stock_run = stock.Autotuner.run
stock_getitem = stock.Autotuner.__getitem__
