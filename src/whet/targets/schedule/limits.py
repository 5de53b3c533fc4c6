"""How large a scheduled payload may be: beyond this, compiling takes minutes."""

from __future__ import annotations

import math
from typing import Any

from whet.targets.schedule.bindings import Bindings
from whet.targets.schedule.script import operations

MOST_OPERATIONS = 20_000
MOST_ELEMENTS = 4_096


def excess(mlir: Bindings, payload: Any) -> str:
    """What is too large, or nothing."""
    found = operations(mlir, payload)
    if len(found) > MOST_OPERATIONS:
        return (
            f"the program now has {len(found):,} operations, more than {MOST_OPERATIONS:,}; "
            "unroll less or take smaller tiles"
        )
    vectors = {one.type for operation in found for one in operation.results}
    for kind in vectors:
        if not isinstance(kind, mlir.ir.VectorType):
            continue
        if math.prod(kind.shape) > MOST_ELEMENTS:
            return (
                f"{kind} has more than {MOST_ELEMENTS:,} elements; tile before vectorizing, or "
                "take smaller tiles"
            )
    return ""
