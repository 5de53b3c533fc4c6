"""What a key that was never tuned may take over from those that were.

A confidence here is the chance that a config reaches `GOOD` of the best speed at that key.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.config import Config
from whet.learn.costmodel import CostModel
from whet.learn.keys import Key, distance

GOOD = 0.8
# From here on a model's pick is preferred to the best of the nearest key.
SURE = 0.7
# From fewer keys a model cannot tell how the best moves with the size.
ENOUGH_KEYS = 4
# Standard deviation of the log time that each doubling away from the known keys adds.
_DRIFT = 0.1
# Of a GEMM, the best one doubling away was good at 15 of 16 keys; other kernels may be less even.
_NEAREST, _HALVED_IN = 0.9, 3.0


@dataclass(frozen=True)
class Tuned:
    """A key that was tuned, and what was best there."""

    key: Key
    best: Config


@dataclass(frozen=True)
class ModelPick:
    config: Config
    confidence: float


def nearest_first(key: Key, tuned: Sequence[Tuned]) -> list[tuple[float, Tuned]]:
    """With their distances in doublings. Which are comparable at all is for the caller to say."""
    ranked = [(distance(key, one.key), one) for one in tuned]
    return sorted(ranked, key=lambda pair: (pair[0], json.dumps(dict(pair[1].key), sort_keys=True)))


def model_picks(
    model: CostModel, key: Key, configs: Sequence[Config], away: float
) -> Iterator[ModelPick]:
    """The configs by what the model expects of them, the best first; `away` is how far the nearest
    key is that was tuned. Configs it does not know are left out."""
    mean, deviation = model.predict(key, configs)
    for at in np.argsort(mean, kind="stable"):
        if not math.isnan(mean[at]):
            yield ModelPick(configs[at], _chance(float(mean[at]), float(deviation[at]), away))


def nearest_confidence(away: float) -> float:
    return _NEAREST * math.exp2(-away / _HALVED_IN)


def _chance(mean: float, deviation: float, away: float) -> float:
    spread = max(math.hypot(deviation, _DRIFT * away), 1e-6)
    return 0.5 * (1 + math.erf((-math.log(GOOD) - mean) / (spread * math.sqrt(2))))
