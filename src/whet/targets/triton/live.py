"""What is alive in this process: autotuners, and objects as the garbage collector knows them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

# Python 3.12 and later start with some hundred frozen objects of their own; whoever has imported
# Triton and freezes has a hundred thousand.
FROZEN = 10_000


How = Literal["decorated", "taken", "subclass", "left alone", "plain"]


@dataclass(frozen=True)
class InstalledKernel:
    """A live autotuner. `how` says how whet reached it: `decorated` by whet, `taken` over from
    Triton's class or from a `subclass` of it, or `left alone`, with the `reason`; a `plain` kernel
    has no autotuner. `launch` says whether its launches are `direct`, and if not, why; `guards` are
    the functions that decide it for each kind of call, as Python. `keys` is the
    number of keys in its cache, or, where that cannot be counted, of keys that this process has
    measured; `seconds` is the time spent on tuning them."""

    kernel: str
    place: str
    kind: str
    how: How
    reason: str
    keys: int
    seconds: float
    called: bool
    launch: str = ""
    guards: tuple[str, ...] = ()


def instances(kinds: set[Any], attribute: str) -> list[Any]:
    """Those of exactly these classes that have the attribute: others are not made to their end.

    An object refers to its class, and to ask who does takes half as long as a look at all objects,
    15 ms for 200,000 of them; each further class makes it longer.
    """
    with _thawed():
        # Not isinstance, which proxies answer by doing things.
        return [
            thing
            for thing in gc.get_referrers(*kinds)
            if type(thing) in kinds and attribute in vars(thing)
        ]


def with_subclasses(kind: Any) -> Iterator[Any]:
    yield kind
    for other in kind.__subclasses__():
        yield from with_subclasses(other)


@contextmanager
def _thawed() -> Iterator[None]:
    """What a server has put aside with `gc.freeze()` is not found otherwise. It is put aside again,
    and so is what came since then."""
    if gc.get_freeze_count() < FROZEN:
        yield
        return
    collecting = gc.isenabled()
    gc.disable()
    gc.unfreeze()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
