"""What each strategy asks for, as it was when its benchmarks were run.

How a search weighs things is by judgement and by benchmark, not by a formula that could be looked
up. So whole runs are recorded, and a change of any number in it shows as another run. Whoever means
to change one runs the benchmarks, and then `python tests/unit/search/test_search_recorded.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.ensemble

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.space import Ordered, Permutation, Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Cost, Trial
from whet.learn.prior import Prior, prior_for, prior_from
from whet.search import Strategy, make_strategy, modelled
from whet.search.quick import Quick

RECORDED = Path(__file__).with_name("recorded_runs.json")
CLASSIC = ("coordinate", "anneal", "genetic", "evolution")
MODELS = ("gp", "auto", "tpe", "forest", "evolve-model", "quick")

TILES = Space(
    {
        "block_size_x": [16, 32, 48, 64, 96, 128, 256],
        "block_size_y": [1, 2, 3, 4, 8],
        "unroll": [1, 2, 4],
        "layout": ["row", "col", "tile"],
        "pad": [False, True],
    },
    ["block_size_x * block_size_y <= 512"],
)
LOOPS = Space(
    [Permutation("loops", "mnk"), Ordered("tile", (1, 2, 4, 8, 16)), Ordered("depth", (1, 2, 3))]
)
CHOICES = Space(
    [
        {"tile": tile, "warps": warps, **({} if stages is None else {"stages": stages})}
        for tile in (16, 32, 48, 64, 128)
        for warps in (1, 2, 4, 8)
        for stages in (None, 1, 2, 3)
    ]
)
WIDE = Space({f"p{k}": [1, 2, 3, 5, 8, 13] for k in range(9)}, ["p0 + p1 >= 4"])
SPACES = {"tiles": TILES, "loops": LOOPS, "choices": CHOICES, "wide": WIDE}


def log_ns(config: Config, tilt: float = 0.0) -> float:
    """Smooth, with one best, and no two configs alike."""
    log = 9.0
    for at, (name, value) in enumerate(sorted(config.items())):
        if isinstance(value, bool | str):
            log += 0.137 * (1 + at) * (str(value) in ("True", "col"))
        elif isinstance(value, tuple):
            log += 0.0917 * sum(k * "kmn".index(str(one)) for k, one in enumerate(value))
        else:
            best = 2.31 + tilt + 0.29 * len(name) % 3
            log += (0.071 + 0.013 * at) * (math.log2(float(value)) - best) ** 2
    return log


def fails(config: Config) -> bool:
    return hash_of(config) % 9 == 0 or config.get("unroll") == 4 == config.get("block_size_y")


def hash_of(config: Config) -> int:
    return int(config.id[:8], 16)


def outcome(config: Config, tilt: float = 0.0) -> Trial:
    cost = Cost(FrozenMap({"build": 0.5 + 0.01 * (hash_of(config) % 100)}))
    if fails(config):
        return Trial("w", config, Status.BUILD_ERROR, cost=cost)
    timing = Timing((math.exp(log_ns(config, tilt)),), "fake")
    return Trial("w", config, Status.OK, timing, cost=cost)


def table_prior(space: Space) -> Prior:
    some = [config for config in space if hash_of(config) % 3]
    others = [config for config in space if hash_of(config) % 4]
    told = [[outcome(one, 0.4) for one in some], [outcome(one, -0.7) for one in others[:15]]]
    prior = prior_from([told[0], told[1]], Space({"none": [0, 1]}))
    assert prior is not None
    return prior


def sizes_prior(space: Space) -> Prior:
    some = [config for config in space if hash_of(config) % 3]
    told = [({"M": 2**k}, [outcome(one, 0.2 * k) for one in some[k::5]]) for k in (1, 3, 4)]
    prior = prior_for({"M": 4}, space, told, guess=False)
    assert prior is not None
    return prior


PRIORS = {"": None, "table": table_prior, "sizes": sizes_prior}
# The strategy, the space, what is known from elsewhere, of how many configs it is told beforehand,
# how many it is asked for, and how many at a time.
Run = tuple[str, str, str, int, int, int]
RUNS: list[Run] = [
    *((name, space, "", 0, 64, 1) for name in CLASSIC for space in SPACES),
    *((name, "tiles", "table", 0, 40, 4) for name in CLASSIC),
    *((name, "tiles", "", 420, 10, 1) for name in CLASSIC),
    *((name, space, "", 0, 40, 1) for name in MODELS for space in ("tiles", "choices")),
    *((name, "tiles", prior, 0, 30, 1) for name in MODELS for prior in ("table", "sizes")),
    *((name, "tiles", "", 0, 32, 4) for name in MODELS),
    *((name, "tiles", "table", 0, 24, 4) for name in MODELS),
    *((name, "tiles", "", 420, 6, 1) for name in MODELS),
    *((name, "wide", "", 0, 20, 2) for name in MODELS),
    *(("random", space, "", 0, 300, 20) for space in SPACES),
]


class Neighbours:
    """Stands for scikit-learn's ensembles, whose trees are others in every release: says what the
    nearest rows say, and each of its trees by other columns."""

    def __init__(self, n_estimators: int, **settings: Any) -> None:
        self._count = n_estimators
        self._seed = settings["random_state"]
        self._softness = 0.2 + 0.01 * len(settings)

    def fit(self, rows: Any, values: Any, sample_weight: Any = None) -> Neighbours:
        weights = np.ones(len(rows)) if sample_weight is None else sample_weight
        rng = np.random.default_rng(self._seed)
        scales = rng.random((self._count, rows.shape[1]))
        self.estimators_ = [_Tree(rows, values, weights, scale, self._softness) for scale in scales]
        return self

    def predict(self, rows: Any) -> Any:
        return np.mean([one.tree_.predict(rows)[:, 0] for one in self.estimators_], axis=0)


class _Tree:
    def __init__(self, rows: Any, values: Any, weights: Any, scale: Any, softness: float) -> None:
        self._places, self._values, self._weights = rows.astype(float) @ scale, values, weights
        self._scale, self._softness = scale, softness
        self.tree_ = self

    def predict(self, rows: Any) -> Any:
        apart = np.abs((rows.astype(float) @ self._scale)[:, None] - self._places[None])
        felt = np.exp(-apart / self._softness) * self._weights
        return (felt @ self._values / felt.sum(axis=1))[:, None]


@contextmanager
def steady() -> Iterator[None]:
    """And quick: a space that is too large to list is drawn a few hundred configs of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sklearn.ensemble, "RandomForestRegressor", Neighbours)
        patch.setattr(modelled, "DRAWN", 300)
        yield


def made(name: str, space: Space, prior: Prior | None) -> Strategy:
    if name == "quick":
        return Quick(space, 11, transfer=prior)
    return make_strategy(name, space, 11, transfer=prior, whole=False)


def played(run: Run) -> str:
    name, space_name, prior_name, told, evals, batch = run
    space, make_prior = SPACES[space_name], PRIORS[prior_name]
    strategy = made(name, space, make_prior and make_prior(space))
    if told:
        strategy.tell([outcome(config) for config in sorted(space, key=hash_of)[:told]])
    asked: list[Config] = []
    said: list[str] = []
    while len(asked) < evals and (new := strategy.ask(batch)):
        asked += new
        said += [config.id[:6] for config in new]
        # The last of a batch is told of late.
        late = int(batch > 1)
        strategy.tell([outcome(one) for one in asked[-len(new) - late : len(asked) - late]])
        if getattr(strategy, "enough", False):
            said.append("enough")
    return " ".join(said)


def title(run: Run) -> str:
    return "-".join(str(part) for part in run if part)


@pytest.mark.medium
@pytest.mark.parametrize("run", RUNS, ids=title)
def test_a_run_is_as_it_was_recorded(run: Run) -> None:
    with steady():
        assert played(run) == json.loads(RECORDED.read_text())[title(run)]


if __name__ == "__main__":
    with steady():
        runs = {title(run): played(run) for run in RUNS}
    RECORDED.write_text(json.dumps(runs, indent=1) + "\n")
