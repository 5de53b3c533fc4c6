"""The author's own functions: whether a call does its work, and whose fault it is if one raises."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from whet.core.errors import ConfigFailure, TargetError, WhetError
from whet.core.status import Status
from whet.measure.bench.failures import from_exception

T = TypeVar("T")

_AWAIT = "give a function that runs it to its end, with asyncio.run(…)"
_EXHAUST = "give a function that runs it to its end, with list(…)"
_LAZY = (
    (inspect.iscoroutinefunction, "a coroutine function", _AWAIT),
    (inspect.isasyncgenfunction, "an async generator", _AWAIT),
    (inspect.isgeneratorfunction, "a generator", _EXHAUST),
)


def refuse_lazy(fn: Any, what: str) -> None:
    """Raises where a call only makes a coroutine or a generator, so that no work would be timed."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    for is_lazy, kind, how in _LAZY:
        if is_lazy(fn) or is_lazy(getattr(type(fn), "__call__", None)):  # noqa: B004
            raise TargetError(f"{what} is {kind}, so a call of it does no work yet; {how}")


def refuse_unfinished(returned: Any, what: str) -> Any:
    """What a call returned, unless that is where the work would be done."""
    lazy = inspect.isgenerator(returned)
    if lazy or inspect.isasyncgen(returned) or inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()  # or Python warns that it was never awaited
        kind, how = type(returned).__name__, _EXHAUST if lazy else _AWAIT
        raise TargetError(f"{what} returned a {kind} and left its work undone; {how}")
    return returned


def asked(what: str, step: Callable[[], T]) -> T:
    """The answer of a function beside the kernel. What it raises is no config's fault, unless it
    may come from what a config did to the device."""
    try:
        return step()
    except (WhetError, ConfigFailure):
        raise
    except Exception as problem:
        failure = from_exception(problem)
        if failure.status is Status.RESOURCES or failure.spoils:
            raise
        raise TargetError(f"{what} raised {failure.message}") from problem
