"""A cost model outlives its process as plain JSON, and bad JSON is refused."""

from __future__ import annotations

import copy
import json
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.core.config import Config
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.learn.columns import Columns, belongs
from whet.learn.costmodel import WORST, CostModel, slowness
from whet.learn.keys import distance, key_parts, labels_of

SPACE = Space({"BM": [16, 32, 64, 128], "stages": [1, 2, 3], "order": ["rows", "columns"]})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


def timed(config: Config, ns: float, status: Status = Status.OK) -> Trial:
    return Trial("w", config, status, Timing((ns,), "fake"))


def ns_of(config: Any, m: int) -> float:
    tiles = math.ceil(m / config["BM"])
    return 100.0 * (1 + abs(math.log2(tiles) - 3)) * (1 + 0.1 * int(config["stages"]))


@cache
def model() -> CostModel:
    pytest.importorskip("sklearn")
    told = [({"M": m}, [timed(config, ns_of(config, m)) for config in SPACE]) for m in (128, 512)]
    fitted = CostModel.fitted(SPACE, told)
    assert fitted is not None
    return fitted


class TestKeeping:
    @pytest.mark.medium
    def test_a_model_read_back_predicts_the_same(self) -> None:
        again = CostModel.from_json(json.loads(json.dumps(model().to_json())))
        for size in (100, 256, 4096):
            for mine, theirs in zip(
                model().predict({"M": size}, list(SPACE)),
                again.predict({"M": size}, list(SPACE)),
                strict=True,
            ):
                assert np.array_equal(mine, theirs)

    def test_what_a_target_says_of_a_config_is_asked_again(self) -> None:
        def says(config: Config) -> dict[str, float]:
            return {"rows": float(config["order"] == "rows")}

        told = [
            ({"M": m}, [timed(one, 100.0 + 100 * says(one)["rows"]) for one in SPACE])
            for m in (1, 2)
        ]
        fitted = CostModel.fitted(SPACE, told, features=says)
        assert fitted is not None
        again = CostModel.from_json(json.loads(json.dumps(fitted.to_json())), says)
        assert again.columns.extras == ("rows",)
        assert np.array_equal(
            again.predict({"M": 1}, list(SPACE))[0], fitted.predict({"M": 1}, list(SPACE))[0]
        )

    def test_configs_of_other_values_are_not_predicted(self) -> None:
        strangers = [
            Config(BM=16, stages=1, order="none"),
            Config(BM=16, stages=True, order="rows"),
        ]
        strangers.append(Config(BM=16, stages=1, order="rows", more=1))
        assert np.isnan(model().predict({"M": 128}, strangers)[0]).all()


class TestHostileModels:
    @pytest.mark.medium
    @given(JSON)
    def test_anything_else_is_refused(self, data: Any) -> None:
        with pytest.raises(ValueError, match=r"^it "):
            CostModel.from_json(data)

    @pytest.mark.medium
    @given(st.data())
    def test_a_part_replaced_is_refused_or_still_predicts(self, data: st.DataObject) -> None:
        body = copy.deepcopy(model().to_json())
        part = data.draw(st.sampled_from(["columns", "trees"]))
        name = data.draw(st.sampled_from(sorted(body[part])))
        held = body[part][name]
        if isinstance(held, list) and held and data.draw(st.booleans()):
            held[data.draw(st.integers(0, len(held) - 1))] = data.draw(JSON)
        else:
            body[part][name] = data.draw(JSON)
        try:
            damaged = CostModel.from_json(body)
        except ValueError:
            return
        mean, _ = damaged.predict({"M": 64}, list(SPACE))
        assert len(mean) == len(SPACE)

    @pytest.mark.parametrize("right", [0, 1, -1, 10**6, 10**30])
    def test_a_branch_that_leads_back_or_out_is_refused(self, right: int) -> None:
        body = copy.deepcopy(model().to_json())
        body["trees"]["rights"][0] = right
        with pytest.raises(ValueError, match="its "):
            CostModel.from_json(body)

    def test_trees_for_other_columns_are_refused(self) -> None:
        body = copy.deepcopy(model().to_json())
        body["columns"]["sums"].pop()
        with pytest.raises(ValueError, match="its trees use"):
            CostModel.from_json(body)


class TestSlowness:
    def test_what_failed_or_was_never_sampled_is_as_slow_as_can_be(self) -> None:
        fast, slow, hopeless, broken = list(SPACE)[:4]
        logs = slowness(
            [
                timed(fast, 100.0),
                timed(slow, 200.0, Status.OUTRACED),
                Trial("w", hopeless, Status.OUTRACED),
                Trial("w", broken, Status.RESOURCES),
            ]
        )
        assert logs == {
            fast: 0.0,
            slow: pytest.approx(math.log(2)),
            hopeless: WORST,
            broken: WORST,
        }

    def test_a_lucky_sample_of_a_loser_does_not_become_the_best(self) -> None:
        best, lucky = list(SPACE)[:2]
        logs = slowness([timed(best, 100.0), timed(lucky, 90.0, Status.OUTRACED)])
        assert logs == {best: 0.0, lucky: 0.0}

    def test_another_way_of_measuring_is_left_out(self) -> None:
        best, other = list(SPACE)[:2]
        foreign = Trial("w", other, Status.OK, Timing((500.0,), "fake", l2="cold"))
        assert slowness([timed(best, 100.0), foreign]) == {best: 0.0}

    def test_nothing_measured_teaches_nothing(self) -> None:
        assert slowness([Trial("w", Config(BM=16), Status.RESOURCES)]) == {}


class TestKeys:
    def test_shapes_are_numbers_and_dtypes_are_labels(self) -> None:
        numbers, labels = key_parts({"M": 64, "a": "float16[8x32]", "causal": True, "d": (2, "f")})
        assert numbers == {"M": 64.0, "a.0": 8.0, "a.1": 32.0, "d.0": 2.0}
        assert labels == {"a": "float16[2]", "causal": True, "d": 2, "d.1": "f"}

    def test_keys_of_other_dtypes_or_ranks_have_other_labels(self) -> None:
        assert labels_of({"a": "f16[8x8]"}) == labels_of({"a": "f16[4x2]"})
        assert labels_of({"a": "f16[8x8]"}) != labels_of({"a": "f32[8x8]"})
        assert labels_of({"a": "f16[8x8]"}) != labels_of({"a": "f16[8]"})

    def test_the_distance_is_in_doublings(self) -> None:
        assert distance({"M": 64, "N": 8}, {"M": 128, "N": 8}) == 1.0


class TestColumns:
    @pytest.mark.parametrize("parameter", ["BLOCK_SIZE_M", "block_m", "BM"])
    def test_a_parameter_cuts_the_size_it_is_named_after(self, parameter: str) -> None:
        assert belongs(parameter, "M")
        assert not belongs(parameter, "N")

    def test_how_many_times_a_parameter_goes_into_a_size_is_a_column(self) -> None:
        space = Space({"BM": [16, 32], "BN": [16, 32]})
        columns = Columns.of(space, [{"M": 1, "N": 1}])
        configs = [Config(BM=32, BN=16)]
        row = columns.rows({"M": 100, "N": 60}, columns.parts(configs))[0]
        assert row[columns.sums.index(((0, 0), (1, 1)))] == 4.0

    def test_where_names_tell_nothing_every_pair_is_a_column(self) -> None:
        space = Space({"tile": [16, 32, 64], "flag": [True, False]})
        columns = Columns.of(space, [{"rows": 1, "cols": 1}])
        assert {((0, 0),), ((1, 0),)} <= set(columns.sums)
