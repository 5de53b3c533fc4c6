"""What targets share: the author's own functions, and whose fault it is if one raises; the machine
at hand; and what all targets on the host have in common."""

from __future__ import annotations

import functools
import inspect
import os
import platform
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from whet.core.errors import ConfigFailure, TargetError, UsageError, WhetError
from whet.core.lazy import cached_property
from whet.core.process import memory_info
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Method
from whet.core.workload import Device, Limits
from whet.measure.bench.protocol import from_exception
from whet.targets.fingerprint import place_of

if TYPE_CHECKING:
    from whet.builds.job import Job
    from whet.core.config import Config, Value
    from whet.measure.timers import MakeTimer

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


@cache
def host_device() -> Device:
    return Device(
        name=_cpu_name(),
        vendor="cpu",
        architecture=platform.machine(),
        limits=Limits(
            multiprocessors=len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count(),
            memory_bytes=memory_info("MemTotal"),
        ),
    )


def _cpu_name() -> str:
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    if "model name" in fields:
        return fields["model name"]
    if "CPU part" in fields:  # ARM names its cores by number only
        return f"ARM implementer {fields.get('CPU implementer')} part {fields['CPU part']}"
    return platform.processor() or platform.machine()


def space_from(space: Any, constraints: Sequence[Any]) -> Space:
    """A `Space` as it is; anything else becomes one with these constraints."""
    if not isinstance(space, Space):
        return Space(space, constraints=constraints)
    if constraints:
        raise UsageError("give the constraints either to the Space or here with a dict, not both")
    return space


class HostTarget:
    """What targets have in common whose kernels run on the host's clock. A base of frozen
    dataclasses, which have these as fields."""

    file: str
    place: str
    make_timer: MakeTimer

    shares_host = True

    @cached_property
    def method(self) -> Method | None:
        return Method(self.make_timer().name)

    def reject(self, config: Config) -> str | None:
        return None

    def job(self, config: Config) -> Job | None:
        return None

    def twin(self, config: Config, facts: Mapping[str, Value]) -> Hashable | None:
        return None

    def features(self, config: Config) -> Mapping[str, float]:
        return {}

    def defined_at(self) -> str:
        return self.place or place_of(self.file, self)

    def placed(self, place: str) -> Self:
        return replace(self, place=place)  # type: ignore[type-var]

    def tune_key(self) -> None:
        return None

    def tune_remedy(self, command: str) -> str:
        return f"tune it with: {command}"
