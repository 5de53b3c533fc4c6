"""Contract tests for targets, as a pytest class.

    class TestMine(TargetContract):
        def make_target(self):
            return whet.native(…)

The target must have at least two configs, of which the first works.
"""

from __future__ import annotations

from whet.core.config import Config
from whet.core.status import Status
from whet.engine import Target, tune
from whet.engine.target import BenchLimits
from whet.store import MemoryStore


class TargetContract:
    """Subclass this, implement `make_target`, and let pytest collect it."""

    def make_target(self) -> Target:
        raise NotImplementedError

    def test_is_a_target_with_a_first_config(self) -> None:
        target = self.make_target()
        assert isinstance(target, Target)
        assert target.name
        assert target.space.first is not None
        assert target.space.first in target.space

    def test_two_of_a_kind_are_one_workload(self) -> None:
        assert self.make_target().workload().id == self.make_target().workload().id

    def test_the_first_config_is_not_rejected(self) -> None:
        target = self.make_target()
        first = target.space.first
        assert first is not None
        assert target.reject(first) is None

    def test_features_are_numbers(self) -> None:
        target = self.make_target()
        first = target.space.first
        assert first is not None
        assert all(isinstance(v, int | float) for v in target.features(first).values())

    def test_a_bench_can_be_opened_and_closed_unused(self) -> None:
        with self.make_target().bench(BenchLimits()):
            pass

    def test_is_tuned_end_to_end_and_then_remembered(self) -> None:
        store = MemoryStore()
        target = self.make_target()
        result = tune(target, store=store, jobs=2)
        assert result.best.status is Status.OK
        assert result.best.config in target.space
        assert result.best.timing is not None
        assert result.best.timing.samples
        again = tune(self.make_target(), store=store, jobs=2)
        assert again.source == "stored"
        assert again.trials == ()
        assert again.config == result.config

    def test_every_config_gets_its_own_trial(self) -> None:
        target = self.make_target()
        result = tune(target, store=MemoryStore(), jobs=2)
        tried: set[Config] = {trial.config for trial in result.trials}
        assert tried == set(target.space)
