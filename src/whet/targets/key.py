"""The key of a workload, and the shape of a call, read off its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whet.core.config import freeze_value
from whet.core.errors import SpaceError, UsageError
from whet.core.frozen import FrozenMap


def key_of(given: Mapping[str, Any] | None, *arguments: Mapping[Any, Any]) -> FrozenMap[Any]:
    """What the author gave, else shape and dtype of each array and the value of each scalar."""
    if given is not None:
        if not isinstance(given, Mapping):
            name = next(iter(given), "n") if isinstance(given, list | tuple) else "n"
            raise UsageError(
                f"key={given!r} is of type {type(given).__name__}; give each name its value, "
                f"such as key={{{name!r}: 1024}}"
            )
        return FrozenMap({str(name): _plain(name, value) for name, value in given.items()})
    key: dict[str, Any] = {}
    for group in arguments:
        for name, value in group.items():
            described = _describe(value)
            if described is not None:
                key[str(name)] = described
    return FrozenMap(key)


def shape_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The types of the arguments and the keywords' names: calls of one shape are told apart by one
    expression. Of keywords the types count too: None may stand where a tensor did.
    """
    if not kwargs:
        return tuple(map(type, args))
    return (*map(type, args), *kwargs, *map(type, kwargs.values()))


def _plain(name: str, value: Any) -> Any:
    try:
        return freeze_value(value, f"key '{name}'")
    except SpaceError as error:
        raise UsageError(str(error)) from None


def _describe(value: Any) -> Any:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None and len(shape):
        return f"{dtype}[{'x'.join(str(n) for n in shape)}]"
    try:
        return freeze_value(value)
    except SpaceError:
        return None  # an object of the user's own: nothing that could be compared
