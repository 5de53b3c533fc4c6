"""An immutable mapping that can be hashed, compared and sent to another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Self, TypeVar

V = TypeVar("V")


class FrozenMap(dict[str, V]):
    """`FrozenMap({"a": 1})["a"] == 1`. Keeps insertion order; order does not affect equality.

    A dict, so that reading one is as fast as reading any; what would change it raises TypeError.
    """

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:  # type: ignore[override]
        try:
            return self._hash
        except AttributeError:
            self._hash = hash(frozenset(self.items()))
            return self._hash

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict.__repr__(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (dict(self),))

    def __or__(self, other: Mapping[str, Any]) -> Self:  # type: ignore[override]
        return type(self)({**self, **other})

    # As with tuples, `one |= two` makes a new one.
    __ior__ = __or__  # type: ignore[assignment]

    def _refuse(self, *arguments: Any, **named: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is immutable")

    __setitem__ = __delitem__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse
