"""The product of `whet demo --schedule`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whet.core.run import Result
    from whet.core.space import Space
    from whet.engine.settings import Settings

# Neither tiled nor vectorized: what is left is three loops.
_PLAIN = """\
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %none = transform.tune.knob<"none"> options = [0] -> !transform.param<i64>
    %func = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.bufferization.eliminate_empty_tensors %func : !transform.any_op
    %module = transform.bufferization.one_shot_bufferize %root
      {bufferize_function_boundaries = true} : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""


class ScheduleProduct:
    """`whet.schedule` of a product, against NumPy on one thread."""

    unit = 1e9
    rival = "NumPy"
    rival_remark = "one thread"
    checked_against = "NumPy"

    def __init__(self, n: int) -> None:
        from whet.cli.commands.demo_files import example_file
        from whet.targets.files import load_module
        from whet.targets.schedule.payloads import matmul
        from whet.targets.schedule.target import schedule

        self.n = n
        self._payload = matmul(n, n, n)
        self._schedule = schedule
        self._target = schedule(self._payload, name="demo_schedule")
        self._example = load_module(example_file("matmul.py"))

    @property
    def title(self) -> str:
        device = self._target.workload().device.name
        return f"A matrix product scheduled with MLIR's transform dialect, on {device}"

    @property
    def space(self) -> Space:
        return self._target.space

    def rival_seconds(self) -> float:
        return float(self._example.numpy_seconds(self.n))

    def plain_seconds(self) -> float:
        from whet.engine import Plan, tune

        plain = self._schedule(self._payload, _PLAIN, name="demo_plain")
        result = tune(
            plain, store=":memory:", plan=Plan.fixed(3), jobs=1, progress=False, mode="tune"
        )
        return (result.best.median_ns or math.inf) / 1e9

    def tune(
        self, settings: Settings, flags: Mapping[str, str | None], quiet: bool
    ) -> tuple[Result | None, bool]:
        from whet.cli.arguments.tuning import run_tuning

        return run_tuning(self._target, settings, quiet=quiet)

    def nothing_yet(self) -> dict[str, Any]:
        from whet.cli.arguments.tuning import nothing_yet

        return nothing_yet(self._target)
