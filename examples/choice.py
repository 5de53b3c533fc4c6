"""A choice between three ways to multiply matrices in NumPy: `python examples/choice.py`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import whet

Matrix = npt.NDArray[np.float32]


@whet.choice(
    against={
        "einsum": lambda a, b: np.einsum("mk,kn->mn", a, b),
        "broadcast": lambda a, b: (a[:, :, None] * b).sum(1, dtype=np.float32),
    },
    rtol=1e-3,
    atol=1e-3,
)
def product(a: Matrix, b: Matrix) -> Matrix:
    return a @ b


def main() -> None:
    random = np.random.default_rng(0)
    for m, k, n in ((1, 8, 4), (64, 64, 64)):
        a = random.standard_normal((m, k), dtype=np.float32)
        b = random.standard_normal((k, n), dtype=np.float32)
        product(a, b)
    for key, name in product.picks.items():
        print(f"{name:9}  {key}")


if __name__ == "__main__":
    main()
