"""A program that uses what was tuned and tunes nothing itself: softmax over rows of three batches.

WHET_MODE=record python examples/serve.py
whet tune --missed
WHET_MODE=require python examples/serve.py
"""

import numpy as np

import whet
from whet.targets.function import FunctionTarget

COLUMNS = 2048


def softmax(x: np.ndarray, rows: int, in_place: bool) -> np.ndarray:
    """Softmax of every row, `rows` of them at a time, so that a block stays in the cache."""
    out = np.empty_like(x)
    for start in range(0, len(x), rows):
        part = x[start : start + rows]
        if in_place:
            block = np.subtract(part, part.max(1, keepdims=True), out=out[start : start + rows])
            np.exp(block, out=block)
            block /= block.sum(1, keepdims=True)
        else:
            block = np.exp(part - part.max(1, keepdims=True))
            out[start : start + rows] = block / block.sum(1, keepdims=True)
    return out


def tunable(batch: int) -> FunctionTarget:
    x = np.random.default_rng(0).random((batch, COLUMNS), dtype=np.float32)
    exact = np.exp(x.astype(np.float64))
    return whet.function(
        softmax,
        whet.Space({"rows": [256, 64, 16, 4], "in_place": [False, True]}),
        args=(x,),
        key={"batch": batch, "columns": COLUMNS},
        reference=exact / exact.sum(1, keepdims=True),
        rtol=1e-4,
    )


# Each under a name of its own, by which whet tune --missed finds it again.
small, middle, large = tunable(16), tunable(64), tunable(256)

if __name__ == "__main__":
    for target in (small, middle, large):
        choice = whet.choose(target)
        target.fn(*target.args, **choice.config)
        print(f"batch {target.key['batch']:3}  {choice.config}: {choice.reason}")
