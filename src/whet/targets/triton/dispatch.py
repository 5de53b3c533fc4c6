"""The way of a call whose config is known: a look at the arguments, a look-up, a launch.

No dictionary is made, no store asked and no lock taken on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from whet.core.mode import Mode

Known = tuple[Any, dict[str, Any]]
Key = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]


@cache
def _key_of(expression: str) -> Key:
    """One expression made for a shape of call is several times as quick as any loop over the
    arguments. It holds nothing but places and names of parameters."""
    made: Key = eval(f"lambda args, kwargs: {expression}")
    return made


class DispatchPlan:
    """How to tell calls of one shape apart: those with the same types in the same places.

    `key(args, kwargs)` is the values Triton's own key is made of, with the device where there is
    more than one. `known` has the config and its keywords for each key.
    """

    def __init__(
        self,
        keys: Sequence[str],
        arg_names: Sequence[str],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        with_device: bool,
    ) -> None:
        places = {name: place for place, name in enumerate(arg_names) if place < len(args)}
        tensors = [place for place, value in enumerate(args) if hasattr(value, "dtype")]
        parts = [f"args[{places[name]}]" for name in keys if name in places]
        parts += [f"kwargs[{name!r}]" for name in keys if name in kwargs]
        parts += [f"args[{place}].dtype" for place in tensors]
        parts += [f"kwargs[{n!r}].dtype" for n, v in kwargs.items() if hasattr(v, "dtype")]
        # An optional tensor that is missing now may be there next time.
        parts += [f"args[{place}] is None" for place, value in enumerate(args) if value is None]
        if with_device:
            named = [f"kwargs[{name!r}]" for name, v in kwargs.items() if hasattr(v, "dtype")]
            parts += [f"{one}.device" for one in (*(f"args[{i}]" for i in tensors), *named)][:1]
        self.key = _key_of(f"({', '.join(parts)}{',' * bool(parts)})")
        self.known: dict[Any, Known] = {}


class DispatchTable:
    """`plans` by shape of call; `quick` has the first seen with so many positional arguments."""

    def __init__(self) -> None:
        self.plans: dict[Any, DispatchPlan] = {}
        self.quick: dict[int, DispatchPlan] = {}


class Cache(dict[Any, Any]):
    """Triton's `cache` of configs by key, as people know and clear it.

    `tables` lead to configs more quickly. There is one for every mode that a context can ask for,
    and None for none: what is used in one mode may not be what another one wants. All are
    forgotten whenever the cache is changed by hand. One that is `shared` has others who add to it:
    a new key, too, may be about calls that are known by another.
    """

    def __init__(self, *, shared: bool = False) -> None:
        super().__init__()
        self.shared = shared
        self.tables: dict[Mode | None, DispatchTable] = {}

    def table(self, asked: Mode | None) -> DispatchTable:
        return self.tables.setdefault(asked, DispatchTable())

    @property
    def plans(self) -> dict[Any, DispatchPlan]:
        return self.table(None).plans

    def forget_plans(self) -> None:
        self.tables.clear()

    def clear(self) -> None:
        super().clear()
        self.forget_plans()

    def __setitem__(self, key: Any, config: Any) -> None:
        if key in self or self.shared:
            self.forget_plans()
        super().__setitem__(key, config)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self.forget_plans()

    def pop(self, *args: Any) -> Any:
        self.forget_plans()
        return super().pop(*args)

    def update(self, *args: Any, **kwargs: Any) -> None:
        super().update(*args, **kwargs)
        self.forget_plans()

    def __ior__(self, other: Any) -> Cache:  # type: ignore[misc]
        self.update(other)
        return self

    def popitem(self) -> tuple[Any, Any]:
        self.forget_plans()
        return super().popitem()


def shape_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a `DispatchPlan` is kept under: the types of the arguments and the keywords' names.

    Of keywords the types count too: None may stand where a tensor did.
    """
    if not kwargs:
        return tuple(map(type, args))
    return (*map(type, args), *kwargs, *map(type, kwargs.values()))
