"""Keys that nothing came of: those with the same reason are told together."""

from __future__ import annotations

from collections.abc import Iterable

from whet.cli.arguments.reading import problem_text
from whet.cli.terminal.output import count_text, wrap
from whet.core.workload import Workload

MOST_NAMES = 4


def left_lines(left: Iterable[tuple[Workload, str]], width: int, before: str = "") -> list[str]:
    """One paragraph a reason."""
    reasons: dict[str, list[Workload]] = {}
    for workload, why in left:
        reasons.setdefault(why, []).append(workload)
    return [
        line
        for why, several in reasons.items()
        for line in wrap(f"{before}{_named(several)}: {why}", width, indent=len(before) + 2)
    ]


def _named(several: list[Workload]) -> str:
    if len(several) == 1:
        return problem_text(several[0])
    kernels = list(dict.fromkeys(one.kernel for one in several))
    more = f" and {len(kernels) - MOST_NAMES} other kernels" if len(kernels) > MOST_NAMES else ""
    return f"{count_text(len(several), 'key')} of {', '.join(kernels[:MOST_NAMES])}{more}"
