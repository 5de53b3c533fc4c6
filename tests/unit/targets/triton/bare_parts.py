"""What a measuring process without torch imports in tests: as little as it does by itself."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from whet.measure.bench.executor import MakeExecutor


@dataclass(frozen=True)
class Probe:
    """In the place of a station: it tells what the process has imported to make one."""

    make: MakeExecutor

    def __call__(self) -> Probe:
        self.make()
        return self

    def imported(self) -> list[str]:
        return sorted(sys.modules)


def like_cuda() -> Any:
    """For a process that has all of Triton: told that larger blocks are faster."""
    import isolated_parts as parts

    timer = parts.by_block()
    timer.name, timer.l2 = "cuda", "cold"  # type: ignore[attr-defined, misc]
    return timer
