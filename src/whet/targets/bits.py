"""What a Python callable returns and leaves behind, as hashes of its bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whet.core.config import Value
from whet.measure.bench.bits import (
    EVEN,
    LAUNCHES,
    REAL,
    WIDE,
    bit_facts,
    fill_array,
    value_hash,
)


def function_bits(
    fn: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Value]:
    """Each call gets copies of the arrays, so that all begin from the same."""
    import numpy as np

    def call(inputs: str) -> dict[str, str]:
        arrays: dict[str, Any] = {}

        def copied(name: str, value: Any) -> Any:
            if not isinstance(value, np.ndarray):
                return value
            arrays[name] = value.copy()
            if inputs != REAL:
                fill_array(arrays[name], inputs, len(arrays))
            return arrays[name]

        given = [copied(str(place), value) for place, value in enumerate(args)]
        named = {name: copied(name, value) for name, value in keywords.items()}
        hashes = {"return value": value_hash(fn(*given, **named))}
        return hashes | {name: value_hash(array) for name, array in arrays.items()}

    runs = {REAL: [call(REAL) for _ in range(LAUNCHES)]}
    floating = [v for v in (*args, *keywords.values()) if isinstance(v, np.ndarray)]
    if not any(array.dtype.kind in "fc" for array in floating):
        return bit_facts(runs)
    try:
        runs |= {kind: [call(kind) for _ in range(LAUNCHES)] for kind in (EVEN, WIDE)}
    except Exception as error:
        why = f"it fails on others ({type(error).__name__}: {error})"
        return bit_facts({REAL: runs[REAL]}, why)
    return bit_facts(runs)
