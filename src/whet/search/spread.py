"""A few configs that stand for a whole list."""

from __future__ import annotations

import numpy as np

from whet.core.config import Config
from whet.core.space import Space


def spread(space: Space, n: int) -> list[Config]:
    """`n` of them, the author's first and then each as far as can be from those before it."""
    configs = list(space)
    if n >= len(configs):
        return configs
    points = space.encode(configs)
    chosen = [0]
    nearest = ((points - points[0]) ** 2).sum(axis=1)
    while len(chosen) < n:
        chosen.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return [configs[at] for at in chosen]
