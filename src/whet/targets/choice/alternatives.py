"""`Alternatives`: what a choice is between, and how its calls are told apart and judged."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakValueDictionary

from whet.core.budget import Budget
from whet.core.lazy import cached_property
from whet.core.mode import Mode
from whet.core.space import Space
from whet.targets.choice.cost import CallCost
from whet.targets.choice.keys import CallKeys, Described, Key
from whet.targets.choice.source import source_of_choice
from whet.targets.fingerprint import Source, place_of

# The one parameter of a choice.
PARAMETER = "implementation"


class Alternatives:
    """`implementations` is a dictionary by name, of which the first is the default."""

    def __init__(
        self,
        implementations: Mapping[str, Callable[..., Any]],
        *,
        name: str,
        file: str,
        key: Key,
        buckets: Mapping[str, Any] | None,
        reference: Callable[..., Any] | None,
        rtol: float | None,
        atol: float | None,
        checks: bool,
        cost: CallCost | None,
        mode: Mode | None,
        budget: Budget | None,
    ) -> None:
        self.implementations = dict(implementations)
        self.name, self.file = name, file
        self.reference, self.rtol, self.atol, self.checks = reference, rtol, atol, checks
        self.cost, self.mode, self.budget = cost, mode, budget
        first = next(iter(self.implementations.values()))
        self.keys = CallKeys(key, buckets, first)
        self.__name__ = name
        self.__doc__ = getattr(first, "__doc__", None)
        with suppress(AttributeError):
            self.__wrapped__ = first

    @cached_property
    def space(self) -> Space:
        return Space({PARAMETER: list(self.implementations)})

    @cached_property
    def source(self) -> Source:
        return source_of_choice(self.name, self.implementations)

    @property
    def called(self) -> str:
        """Its name in its file, which need not be the one that results are stored under."""
        return place_of(self.file, self).rpartition(":")[2] or self.name

    @property
    def title(self) -> str:
        stored = "" if self.called == self.name else f" (stored as '{self.name}')"
        return f"the choice '{self.called}'{stored}"

    @property
    def first(self) -> str:
        return next(iter(self.implementations))


class Traced(Protocol):
    """What `torch.compile` asks of a choice while it traces."""

    number: str
    keys: CallKeys

    def compiled_place(self, description: Described, grad: bool, gpu: int | None) -> int: ...


# By a text, which is all of a choice that Dynamo always takes for a constant: an object is none in
# torch 2.11, and a number may be symbolic.
numbered: WeakValueDictionary[str, Traced] = WeakValueDictionary()
numbers = itertools.count()
