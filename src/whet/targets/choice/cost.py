"""Which cost of a call counts: that of eager calls, or that inside a CUDA graph."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Literal, get_args

from whet.core.errors import UsageError, did_you_mean
from whet.measure.timers import CpuTimer

CallCost = Literal["eager", "graph"]

COSTS: tuple[CallCost, ...] = get_args(CallCost)

# What the innermost `cost(…)` around a call says, None outside of any. Read on every call.
asked_cost: ContextVar[CallCost | None] = ContextVar("whet_cost", default=None)

# Short samples would time the wait for the device at their end.
_EAGER_SAMPLE_NS = 2_000_000


def cost(name: CallCost) -> AbstractContextManager[CallCost]:
    """Sets which cost counts in choices: `with whet.cost("graph"): model(x)` before a capture.

    `eager` is the time a call takes when it is launched from Python, host included; `graph` is the
    time on the device when it is replayed from a CUDA graph. It applies to the current thread or
    task, like `whet.mode`. A choice that was given `cost=` keeps its own.
    """
    return _within(checked_cost(name))


@contextmanager
def _within(name: CallCost | None) -> Iterator[Any]:
    token = asked_cost.set(name)
    try:
        yield name
    finally:
        asked_cost.reset(token)


def checked_cost(value: Any) -> CallCost:
    text = value.strip().lower() if isinstance(value, str) else str(value)
    if text not in COSTS:
        raise UsageError(f"cost {value!r} is not valid{did_you_mean(text, COSTS)}")
    return text


def capturing() -> bool:
    """Whether the current stream records a CUDA graph. Never imports torch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return False
    return bool(torch.cuda.is_current_stream_capturing())


def current_cost(own: CallCost | None) -> CallCost:
    """The choice's own, else the context's; else what goes on now."""
    return own or asked_cost.get() or ("graph" if capturing() else "eager")


class EagerTimer(CpuTimer):
    """Calls to a GPU from Python, one after another: the longer of the host's and the device's part
    counts. What it times waits for the device at the end of each sample."""

    name = "eager"

    def __init__(self) -> None:
        super().__init__(min_sample_ns=_EAGER_SAMPLE_NS)
