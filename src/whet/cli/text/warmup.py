"""What `whet warmup` says of the kernels it has tuned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whet.cli.terminal.output import Column, count_text, page, seconds_text, table, wrap

if TYPE_CHECKING:
    from whet.targets.triton.warming.warmup import WarmedKernel, Warmup

_LAYOUT = (
    Column("kernel", flexible=True),
    Column("configs", align="right"),
    Column("faster", align="right"),
    Column("config", flexible=True),
)


def report(done: Warmup) -> list[str]:
    """A line for each key of each kernel, and what was left."""
    lines = table(_LAYOUT, [_row(one) for one in done.kernels], page()) if done.kernels else []
    for one in done.kernels:
        if one.note:
            lines += wrap(f"not tuned: {one.kernel} ({one.key}): {one.note}", page(), indent=2)
    for note in done.notes:
        lines += wrap(note, page(), indent=2)
    return [*lines, *wrap(_summary(done), page(), indent=2)]


def _row(one: WarmedKernel) -> tuple[str, ...]:
    faster = "–" if one.speedup is None else f"{one.speedup:.2f}×"
    return one.kernel, str(one.configs), faster, "–" if one.config is None else str(one.config)


def _summary(done: Warmup) -> str:
    if not done.kernels:
        return "nothing to tune: the store has a result for every kernel that was launched"
    tuned = sum(one.config is not None for one in done.kernels)
    kernels = count_text(len(done.kernels), "kernel")
    spent, calls = seconds_text(done.seconds), count_text(done.calls, "call")
    return f"{tuned} of {kernels} tuned in {spent}, {calls} of the step"


def as_data(done: Warmup) -> dict[str, Any]:
    return {
        "kernels": [
            {
                "kernel": one.kernel,
                "key": one.key,
                "config": None if one.config is None else dict(one.config),
                "source": one.source,
                "configs": one.configs,
                "speedup": one.speedup,
                "seconds": one.seconds,
                "note": one.note,
            }
            for one in done.kernels
        ],
        "calls": done.calls,
        "seconds": done.seconds,
        "complete": done.complete,
        "notes": list(done.notes),
    }
