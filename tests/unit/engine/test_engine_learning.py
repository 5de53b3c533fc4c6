"""A search that cannot try everything starts from what the store knows of the kernel."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.space import Space
from whet.core.workload import Workload
from whet.engine import tune
from whet.engine.plan import Plan
from whet.engine.recall import learned
from whet.engine.settings import Settings
from whet.store import MemoryStore
from whet.testing.fake_target import FakeTarget

SPACE = Space({"x": [2**k for k in range(8)], "y": [2**k for k in range(8)], "z": [0, 1, 2, 3]})


class Sized(FakeTarget):
    """Its best config moves with the size."""

    def __init__(self, n: int, kernel: str = "fake") -> None:
        def ns(config: Any) -> float:
            away = abs(math.log2(config["x"] * config["y"] / n)) + abs(math.log2(config["x"]) - 4)
            return 1e6 * (1 + 0.3 * away + 0.2 * config["z"])

        super().__init__(SPACE, ns)
        self.n = n
        self.kernel = kernel

    def workload(self) -> Workload:
        return replace(super().workload(), kernel=self.kernel, key=FrozenMap({"n": self.n}))

    def share(self, config: Config) -> float:
        return min(map(self.times, SPACE)) / self.times(config)


def knowing(*sizes: int) -> MemoryStore:
    store = MemoryStore()
    for n in sizes:
        tune(Sized(n), store=store, plan=Plan.fixed(1))
    return store


@pytest.mark.medium
def test_another_size_leads_to_the_best_in_a_few_evaluations() -> None:
    target = Sized(512)
    result = tune(target, store=knowing(256, 1024), budget="6trials")
    assert target.share(result.config) > 0.9


@pytest.mark.medium
def test_the_authors_first_config_is_always_tried() -> None:
    result = tune(Sized(512), store=knowing(256), budget="6trials")
    assert result.first is not None
    assert SPACE.first in [trial.config for trial in result.trials]
    assert len(result.trials) == 6


@pytest.mark.medium
def test_nothing_is_learned_where_the_settings_say_so() -> None:
    asked = [
        tuple(trial.config for trial in result.trials)
        for result in (
            tune(Sized(512), store=knowing(256), settings=Settings(learn=False), budget="6trials"),
            tune(Sized(512), store=MemoryStore(), budget="6trials"),
        )
    ]
    assert asked[0] == asked[1]


@pytest.mark.medium
def test_what_is_given_counts_and_not_the_store() -> None:
    class Fond:
        """Likes large z, wrongly."""

        def scores(self, configs: Any) -> Any:
            return np.array([3.0 - config["z"] for config in configs])

        def failing(self, configs: Any) -> Any:
            return np.full(len(configs), math.nan)

    result = tune(Sized(512), store=knowing(256), transfer=lambda space: Fond(), budget="3trials")
    tried = [trial.config["z"] for trial in result.trials if trial.config != SPACE.first]
    assert tried == [3, 3]


@pytest.mark.medium
def test_only_the_same_source_teaches() -> None:
    store = knowing(256)
    workload = Sized(512).workload()
    assert learned(store, workload, SPACE) is not None
    assert learned(store, replace(workload, fingerprint="another"), SPACE) is None
    assert learned(store, replace(workload, kernel="another"), SPACE) is None


@pytest.mark.medium
def test_the_nearest_sizes_teach_most() -> None:
    store = knowing(32, 4096)
    near, far = (learned(store, Sized(n).workload(), SPACE) for n in (64, 2048))
    assert near is not None
    assert far is not None
    small, large = Config(x=8, y=4, z=0), Config(x=32, y=128, z=0)
    assert np.argmin(near.scores([small, large])) == 0
    assert np.argmin(far.scores([small, large])) == 1
