"""The nouns keep their promises: canonical, frozen, and the same after a trip through JSON."""

import copy
import json
import math
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.errors import BudgetError, ConfigFailure, SpaceError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Result, Run
from whet.core.status import Limit, Status
from whet.core.timing import Summary, Timing, median, median_interval
from whet.core.trial import Cost, Trial
from whet.core.workload import Origin, Workload
from whet.testing.samples import a_run, a_trial, a_workload

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


def through_json(data: dict) -> dict:
    return json.loads(json.dumps(data))


class TestConfig:
    def test_order_of_parameters_does_not_matter(self):
        one, two = Config(a=1, b=2), Config(b=2, a=1)
        assert one == two
        assert one.id == two.id
        assert hash(one) == hash(two)

    def test_one_and_true_and_one_point_zero_are_three_choices(self):
        assert len({Config(a=1).id, Config(a=True).id, Config(a=1.0).id}) == 3
        assert Config(a=1) != Config(a=True)
        assert not Config(a=1) != Config({"a": 1})  # noqa: SIM202
        plain = {"a": 1}
        assert plain != Config(a=1)

    def test_numpy_scalars_become_python_ones(self):
        assert Config(a=np.int64(3), b=np.float32(0.5)) == Config(a=3, b=0.5)

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: 2}, b"x"])
    def test_what_json_cannot_hold_is_refused_by_name(self, value):
        with pytest.raises(SpaceError, match="parameter 'a'"):
            Config(a=value)

    def test_id_is_stable_across_releases(self):
        assert Config(BM=64, order=("i", "k")).id == "f96c7a2330199362"

    def test_cannot_be_changed(self):
        with pytest.raises(TypeError):
            Config(a=1)["a"] = 2

    def test_replace_leaves_the_original_alone(self):
        config = Config(a=1, b=2)
        assert config.replace(a=5) == Config(a=5, b=2)
        assert config == Config(a=1, b=2)

    @pytest.mark.medium
    @given(st.dictionaries(st.text(max_size=5), values, max_size=4))
    def test_survives_json_and_pickle(self, parameters):
        config = Config(parameters)
        assert Config.from_json(config.json) == config
        assert pickle.loads(pickle.dumps(config)) == config

    def test_what_it_does_not_have_is_no_attribute(self):
        assert not hasattr(Config(a=1), "a")


class TestFrozenMap:
    @pytest.mark.parametrize(
        "change",
        [
            lambda one: one.__setitem__("a", 2),
            lambda one: one.__delitem__("a"),
            lambda one: one.update(a=2),
            lambda one: one.setdefault("b", 2),
            lambda one: one.pop("a"),
            lambda one: one.popitem(),
            lambda one: one.clear(),
        ],
    )
    @pytest.mark.parametrize("kind", [FrozenMap, Config])
    def test_cannot_be_changed(self, kind, change):
        one = kind({"a": 1})
        with pytest.raises(TypeError, match=f"{kind.__name__} is immutable"):
            change(one)
        assert dict(one) == {"a": 1}

    @pytest.mark.parametrize("kind", [FrozenMap, Config])
    def test_joined_with_another_it_is_a_new_one(self, kind):
        one = before = kind({"a": 1, "b": 2})
        one |= {"b": 3}
        assert one == kind({"a": 1, "b": 3})
        assert type(one) is type(one | {}) is kind
        assert dict(before) == {"a": 1, "b": 2}

    @pytest.mark.parametrize("kind", [FrozenMap, Config])
    @pytest.mark.parametrize(
        "copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
    )
    def test_a_copy_is_equal_and_of_its_kind(self, kind, copied):
        one = kind({"a": 1, "b": (2, 3)})
        hash(one)
        assert copied(one) == one
        assert type(copied(one)) is kind
        assert hash(copied(one)) == hash(one)

    def test_equality_and_hash_are_by_content(self):
        one, two = FrozenMap({"a": 1, "b": 2}), FrozenMap({"b": 2, "a": 1})
        assert one == two == {"a": 1, "b": 2}
        assert len({one, two, FrozenMap({"a": 1})}) == 2


class TestTiming:
    def test_median_of_even_and_odd_counts(self):
        assert median([3, 1, 2]) == 2
        assert median([4, 1, 2, 3]) == 2.5

    def test_few_samples_promise_no_interval(self):
        assert median_interval([1.0] * 5) is None
        assert median_interval([1, 2, 3, 4, 5, 6]) == (1, 6)

    def test_interval_covers_the_true_median_as_often_as_it_says(self):
        rng = np.random.default_rng(7)
        hits = 0
        for _ in range(400):
            low, high = median_interval(list(rng.lognormal(0, 0.5, 25)))
            hits += low <= 1.0 <= high
        assert hits >= 0.93 * 400

    def test_timings_of_different_kinds_are_not_comparable(self):
        clean = Timing((1.0,), "cpu")
        assert clean.comparable(Timing((2.0,), "cpu"))
        assert not clean.comparable(Timing((2.0,), "cuda"))
        assert not clean.comparable(Timing((2.0,), "cpu", quality="host_bound"))
        foreign = Timing((), "user", foreign=Summary(5.0, 4.0, 6.0, "do_bench"))
        assert foreign.median_ns == 5.0
        assert not clean.comparable(foreign)

    def test_survives_json(self):
        for timing in (
            Timing((1.5, 2.25), "cpu", loops=3, quality="contaminated", discarded=2),
            Timing((), "user", foreign=Summary(5.0, 4.0, 6.0, "do_bench")),
        ):
            assert Timing.from_json(through_json(timing.to_json())) == timing


class TestCost:
    def test_stages_are_part_of_their_phase(self):
        cost = Cost(FrozenMap({"build": 2.0, "build.compile": 1.5, "measure": 1.0}))
        assert cost.work_s == 3.0

    def test_ledgers_add_up_phase_by_phase(self):
        total = Cost.of(build=1.0) + Cost.of(build=2.0, load=0.5)
        assert dict(total.work) == {"build": 3.0, "load": 0.5}


class TestBudget:
    @pytest.mark.parametrize(
        ("text", "budget"),
        [
            ("30s", Budget(seconds=30)),
            ("1.5m", Budget(seconds=90)),
            ("200trials", Budget(trials=200)),
            ("1h, 500 trials", Budget(3600, 500)),
            ("none", Budget()),
            (None, Budget()),
            (5, Budget(seconds=5)),
            (np.float32(0.5), Budget(seconds=0.5)),
        ],
    )
    def test_reads_times_and_counts(self, text, budget):
        assert Budget.parse(text) == budget

    @pytest.mark.parametrize(
        "text", ["30", "fast", "-5s", "0s", "1.5trials", "3s,4s", "30 parsecs"]
    )
    def test_what_cannot_be_read_is_quoted_with_what_could(self, text):
        with pytest.raises(BudgetError, match="30s, 5m, 200trials"):
            Budget.parse(text)

    @pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, [5], {"seconds": 5}])
    def test_what_is_neither_seconds_nor_text_is_named_with_what_could_be(self, value):
        with pytest.raises(BudgetError, match=f"{re.escape(repr(value))} is .*give seconds above"):
            Budget.parse(value)

    @pytest.mark.medium
    @given(st.floats(0.001, 1e6), st.integers(1, 10**6))
    def test_covers_itself_and_less_but_not_more(self, seconds, trials):
        budget = Budget(seconds, trials)
        assert budget.covers(budget)
        assert budget.covers(Budget(seconds / 2, trials))
        assert not budget.covers(Budget(seconds * 2, trials))
        assert not budget.covers(Budget())
        assert Budget().covers(budget)


class TestRecords:
    def test_a_trial_survives_json(self):
        trial = a_trial(
            a_workload(), status=Status.RUN_TIMEOUT, limit=Limit("run_s", 3.0), error="hangs"
        )
        assert Trial.from_json(through_json(trial.to_json())) == trial

    def test_a_run_survives_json(self):
        run = a_run(
            a_workload(), outcome=Outcome.FINISHED, budget=Budget(seconds=3), paired_speedup=6.15
        )
        assert Run.from_json(through_json(run.to_json())) == run

    def test_a_run_of_an_older_whet_has_no_paired_speed_up(self) -> None:
        data = a_run(a_workload(), paired_speedup=6.15).to_json()
        del data["paired_speedup"]
        assert Run.from_json(data).paired_speedup is None

    @pytest.mark.parametrize("wrong", ["6", 0, -1.0, True, float("nan")])
    def test_a_paired_speed_up_that_is_none_is_refused(self, wrong: object) -> None:
        data = {**a_run(a_workload()).to_json(), "paired_speedup": wrong}
        with pytest.raises(ValueError, match="paired_speedup"):
            Run.from_json(data)

    def test_a_workload_is_the_same_whatever_memory_is_free(self):
        workload = a_workload()
        device = replace(workload.device, limits=replace(workload.device.limits, memory_bytes=1))
        assert replace(workload, device=device).id == workload.id
        assert replace(workload, fingerprint="other").id != workload.id

    def test_a_failure_crosses_a_process_boundary_as_itself(self):
        failure = ConfigFailure(Status.RESOURCES, "too big", Limit("memory_bytes", 10))
        copy = pickle.loads(pickle.dumps(failure))
        assert (copy.status, copy.message, copy.limit) == (
            Status.RESOURCES,
            "too big",
            failure.limit,
        )


def test_what_is_large_is_one_short_line_in_a_console():
    slow = {f"PARAMETER_{i}": i for i in range(8)}
    trial = a_trial(
        a_workload(), slow, timing=Timing((1.0,) * 500, "cpu"), error="it is slow\n" * 100
    )
    run = a_run(a_workload(), slow)
    for one in (trial, trial.timing, run, run.workload, Result(run, trial, trial, (trial,) * 200)):
        assert len(repr(one)) < 500
        assert "\n" not in repr(one)


def test_the_line_of_a_trial_says_what_came_of_it():
    assert repr(a_trial(a_workload(), {"BM": 8}, 4000.0)) == "Trial([BM=8] ok, 4,000.0 ns)"
    failed = a_trial(a_workload(), {"BM": 8}, status=Status.BUILD_ERROR, error="no\nsuch")
    assert repr(failed) == "Trial([BM=8] build_error, no)"


def test_did_you_mean_names_the_nearest_and_all_valid_ones():
    assert did_you_mean("BMM", ["BM", "BN"]) == "; did you mean 'BM'? valid: BM, BN"
    assert did_you_mean("zzz", ["BM"]) == "; valid: BM"


ORIGIN = Origin("c0de", FrozenMap({"M": "256"}), ("/home/me/f.py:f",))


def test_an_origin_survives_json_and_changes_no_identity() -> None:
    workload = replace(a_workload(), origin=ORIGIN)
    again = Workload.from_json(workload.to_json())
    assert again.origin == ORIGIN
    assert (workload, workload.id) == (a_workload(), a_workload().id)


def test_a_workload_without_an_origin_is_written_as_before() -> None:
    data = a_workload().to_json()
    assert "origin" not in data
    assert not Workload.from_json(data).origin


def test_of_two_origins_the_newer_place_comes_first_and_what_is_known_stays() -> None:
    newer = Origin(places=("/elsewhere/g.py:g",))
    joined = newer.over(ORIGIN)
    assert joined.places == ("/elsewhere/g.py:g", "/home/me/f.py:f")
    assert (joined.code, joined.captured) == (ORIGIN.code, ORIGIN.captured)


def test_a_portable_origin_names_no_folder() -> None:
    assert ORIGIN.portable().places == ("f.py:f",)


@pytest.mark.parametrize("change", [{"places": "f.py"}, {"code": 1}, {"captured": {"M": 1}}])
def test_an_origin_of_other_types_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is not"):
        Origin.from_json({**ORIGIN.to_json(), **change})
