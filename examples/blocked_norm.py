"""A plain Python callable: the same arithmetic, on blocks that may or may not fit the cache.

whet tune examples/blocked_norm.py:norm
"""

import numpy as np

import whet

x = np.random.default_rng(0).random(2_000_000)


def root_sum(block: int, in_place: bool) -> float:
    """The sum of sqrt(x² + 1), block by block."""
    total = 0.0
    scratch = np.empty(block)
    for start in range(0, x.size, block):
        part = x[start : start + block]
        if in_place:
            square = np.multiply(part, part, out=scratch[: part.size])
            square += 1.0
            total += float(np.sqrt(square, out=square).sum())
        else:
            total += float(np.sqrt(part * part + 1.0).sum())
    return total


norm = whet.function(
    root_sum,
    {"block": [x.size, *(2**k for k in range(8, 21))], "in_place": [False, True]},
    key={"n": x.size},
    reference=float(np.sqrt(x * x + 1.0).sum()),
    rtol=1e-9,
)
