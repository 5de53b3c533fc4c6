"""What `torch.compile` sees of a tuned kernel.

Dynamo reads a kernel's configs without knowing the shapes, and Inductor then benchmarks them by
itself. But it lets `early_config_prune` choose among them first, with the arguments at hand, and
traces it. So for keys that are tuned, that function looks the config up and leaves only this one;
for others it does what the author's own did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

# Values of key arguments and dtypes of tensors, by name, and the place of the config in the list.
Row = tuple[tuple[tuple[str, Any], ...], tuple[tuple[str, Any], ...], int]

# Dynamo compares a call with every row, and each comparison may become a guard.
MOST_ROWS = 32


class Lookup:
    """Grows by one row for every key that is tuned."""

    def __init__(self, own_prune: Callable[..., Any] | None) -> None:
        self.own_prune = own_prune
        self._rows: list[Row] = []

    def add(
        self, keys: Sequence[str], passed: dict[str, Any], place: int
    ) -> Callable[..., Any] | None:
        """The function to use as `early_config_prune` from now on, None where it would not help."""
        values = tuple((name, passed[name]) for name in keys if name in passed)
        if not all(isinstance(value, bool | int | float | str) for _, value in values):
            return None
        dtypes = tuple((n, v.dtype) for n, v in passed.items() if hasattr(v, "dtype"))
        self._rows = [row for row in self._rows if row[:2] != (values, dtypes)]
        self._rows.append((values, dtypes, place))
        return _traceable(tuple(self._rows[-MOST_ROWS:]), self.own_prune)


def _traceable(rows: tuple[Row, ...], own_prune: Callable[..., Any] | None) -> Callable[..., Any]:
    """Plain enough for Dynamo: loops over constants, comparisons, no tensors made."""

    def early_config_prune(configs: Any, named_args: Any, **kwargs: Any) -> Any:
        given = {**named_args, **kwargs}
        for values, dtypes, place in rows:
            same = True
            for name, value in values:
                if name not in given or given[name] != value:
                    same = False
                    break
            if same:
                for name, dtype in dtypes:
                    if name not in given or given[name] is None or given[name].dtype != dtype:
                        same = False
                        break
            if same:
                return [configs[place]]
        if own_prune is not None:
            return own_prune(configs, named_args, **kwargs)
        return configs

    return early_config_prune
