"""A cost model outlives its process as plain JSON, and bad JSON is refused."""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.ensemble import ExtraTreesRegressor

from whet.core.config import Config
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.learn.costmodel import (
    WORST,
    Columns,
    CostModel,
    Tuned,
    belongs,
    model_picks,
    nearest_confidence,
    nearest_first,
    slowness,
)
from whet.learn.keys import distance, key_parts, labels_of, log2
from whet.learn.trees import PlainTrees

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


class TestFitting:
    def rows(self, told: list[tuple[dict[str, int], list[Trial]]]) -> Any:
        columns = Columns.of(SPACE, [key for key, _ in told])
        parts = [columns.parts([trial.config for trial in trials]) for _, trials in told]
        return np.vstack(
            [columns.rows(key, part) for (key, _), part in zip(told, parts, strict=True)]
        )

    def reference(self, rows: Any, logs: Any, weights: Any, seed: int) -> Any:
        forest = ExtraTreesRegressor(
            32, max_features=0.6, max_leaf_nodes=640, max_depth=18, random_state=seed
        )
        return forest.fit(rows, logs, sample_weight=weights)

    @pytest.mark.medium
    def test_it_is_scikit_learns_forest_in_which_the_fast_count_most(self) -> None:
        sizes = (128, 512)
        told = [({"M": m}, [timed(one, ns_of(one, m)) for one in SPACE]) for m in sizes]
        logs = np.concatenate([list(slowness(trials).values()) for _, trials in told])
        reference = self.reference(self.rows(told), logs, np.exp(-3 * logs), 5)
        fitted = CostModel.fitted(SPACE, told, seed=5)
        assert fitted is not None
        mean, deviation = fitted.predict({"M": 256}, list(SPACE))
        rows = self.rows([({"M": 256}, told[0][1])])
        each = np.stack([tree.predict(rows) for tree in reference.estimators_])
        assert mean == pytest.approx(each.mean(axis=0), abs=1e-4)
        assert deviation == pytest.approx(each.std(axis=0), abs=1e-4)

    @pytest.mark.medium
    def test_of_very_many_one_in_four_of_the_slowest_stands_for_all(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: dict[str, Any] = {}

        def grown(rows: Any, values: Any, weights: Any, seed: int, **most: int) -> PlainTrees:
            seen.update(values=values, weights=weights)
            raise LookupError

        monkeypatch.setattr(PlainTrees, "grown", grown)
        space = Space({"BM": list(range(1, 2502)), "on": [0, 1]})
        trials = [timed(one, 100.0 if at < 100 else 900.0) for at, one in enumerate(space)]
        with pytest.raises(LookupError):
            CostModel.fitted(space, [({"M": 8}, trials)])
        slow = seen["values"] == 1.0
        assert (~slow).sum() == 100
        assert slow.sum() == pytest.approx(4902 / 4, rel=0.1)
        assert seen["weights"][slow] == pytest.approx(4 * math.exp(-3))
        assert seen["weights"][~slow] == pytest.approx(1.0)
        with pytest.raises(LookupError):
            CostModel.fitted(space, [({"M": 8}, trials[:5000])])
        assert len(seen["values"]) == 5000

    def test_configs_of_other_spaces_teach_nothing(self) -> None:
        told = [({"M": 1}, [timed(one, 100.0) for one in SPACE])]
        others = [timed(Config(BM=1, stages=1, order="rows"), 50.0), timed(Config(x=1), 50.0)]
        fitted = CostModel.fitted(SPACE, [*told, ({"M": 2}, others)])
        assert fitted is not None
        assert fitted.predict({"M": 2}, list(SPACE))[0] == pytest.approx([0.0] * len(SPACE))


class TestHostileModels:
    @pytest.mark.medium
    @given(JSON)
    def test_anything_else_is_refused(self, data: Any) -> None:
        with pytest.raises(ValueError, match=r"^it "):
            CostModel.from_json(data)

    @pytest.mark.slow
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

    def test_the_slowest_are_all_alike(self) -> None:
        best, slow = list(SPACE)[:2]
        assert slowness([timed(best, 100.0), timed(slow, 300.0)]) == {best: 0.0, slow: 1.0}

    def test_the_best_was_not_timed_one_launch_at_a_time_where_any_was_not(self) -> None:
        best, bound = list(SPACE)[:2]
        foreign = Trial("w", bound, Status.OK, Timing((50.0,), "fake", quality="host_bound"))
        assert slowness([foreign, timed(best, 100.0)]) == {best: 0.0}

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
        assert distance({"M": 1, "N": 1}, {"M": 8, "N": 16}) == 5.0
        assert distance({"M": 1, "N": 1}, {"M": 8, "K": 16}) == 3.0

    def test_any_number_has_a_logarithm(self) -> None:
        assert [log2(number) for number in (8, 1, 0.5, 0, -3)] == [3.0, 0.0, -1.0, -1.0, -4.0]

    def test_what_is_no_size_is_a_label(self) -> None:
        assert key_parts({"a": 1e30, "b": -9.9e29, "c": True})[0] == {"b": -9.9e29}


class TestInheriting:
    def test_the_nearest_key_is_trusted_less_the_farther_it_is(self) -> None:
        confidences = [nearest_confidence(away) for away in (0.0, 3.0, 6.0)]
        assert confidences == pytest.approx([0.9, 0.45, 0.225])

    def test_keys_come_nearest_first_and_equals_by_their_text(self) -> None:
        tuned = [Tuned({"M": m}, Config(a=m)) for m in (64, 2, 16, 4)]
        ranked = [(away, one.key["M"]) for away, one in nearest_first({"M": 8}, tuned)]
        assert ranked == [(1.0, 16), (1.0, 4), (2.0, 2), (3.0, 64)]

    @pytest.mark.parametrize("away", [0.0, 1.0, 4.0])
    def test_a_confidence_is_the_chance_of_four_fifths_of_the_best_speed(self, away: float) -> None:
        """Each doubling away adds a standard deviation of a tenth."""
        configs = list(SPACE)
        mean, deviation = model().predict({"M": 256}, configs)
        picks = list(model_picks(model(), {"M": 256}, [*configs, Config(BM=1)], away))
        order = np.argsort(mean, kind="stable")
        assert [pick.config for pick in picks] == [configs[at] for at in order]
        spread = np.sqrt(deviation[order] ** 2 + (0.1 * away) ** 2).clip(1e-6)
        chances = norm.cdf(-math.log(0.8), mean[order], spread)
        assert [pick.confidence for pick in picks] == pytest.approx(chances, abs=1e-9)


class TestColumns:
    @pytest.mark.parametrize("parameter", ["BLOCK_SIZE_M", "block_m", "BM"])
    def test_a_parameter_cuts_the_size_it_is_named_after(self, parameter: str) -> None:
        assert belongs(parameter, "M")
        assert not belongs(parameter, "N")

    @pytest.mark.parametrize("parameter", ["bm", "BMM", "MB", "ABM"])
    def test_other_names_that_contain_it_do_not(self, parameter: str) -> None:
        assert not belongs(parameter, "M")

    def row(self, columns: Columns, key: dict[str, float], **config: Any) -> dict[Any, float]:
        (row,) = columns.rows(key, columns.parts([Config(config)])).tolist()
        return dict(zip(columns.sums, row, strict=True))

    def test_columns_are_sums_of_logs_of_sizes_parameters_and_how_often_one_has_the_other(
        self,
    ) -> None:
        space = Space({"BM": [16, 32, 48], "BN": [16, 32, 64]})
        row = self.row(Columns.of(space, [{"M": 1, "N": 1}]), {"M": 100, "N": 64}, BM=48, BN=16)
        assert row == pytest.approx(
            {
                ((-1, 0),): math.log2(48),
                ((-1, 1),): 4.0,
                ((0, -1),): math.log2(100),
                ((1, -1),): 6.0,
                ((0, 0),): math.log2(3),
                ((1, 1),): 2.0,
                ((0, 0), (1, 1)): math.log2(3) + 2,
                ((-1, 0), (-1, 1)): math.log2(48) + 4,
                ((0, -1), (1, -1)): math.log2(100) + 6,
            }
        )

    def test_three_cuts_are_joined_too(self) -> None:
        space = Space({"BM": [16, 32], "BN": [16, 32], "BK": [16, 32]})
        columns = Columns.of(space, [{"M": 1, "N": 1, "K": 1}])
        row = self.row(columns, {"K": 32, "M": 64, "N": 128}, BM=16, BN=16, BK=16)
        assert row[((0, 2), (1, 0), (2, 1))] == 6.0
        # Of two values, which are switches, no products are made.
        assert ((-1, 0), (-1, 1)) not in row

    def test_where_names_tell_nothing_every_pair_is_a_column(self) -> None:
        space = Space({"tile": [16, 32, 64], "flag": [True, False], "deep": [2, 4, 8]})
        columns = Columns.of(space, [{"rows": 1, "cols": 1}])
        assert [one for one in columns.sums if len(one) == 1 and min(one[0]) >= 0] == [
            ((0, 0),),
            ((0, 2),),
            ((1, 0),),
            ((1, 2),),
        ]
        assert ((0, 0), (1, 2)) in columns.sums
        assert ((0, 0), (0, 2)) not in columns.sums
        assert ((0, 0), (1, 0)) not in columns.sums
        assert max(map(len, columns.sums)) == 2

    def test_no_kind_of_guess_has_more_than_64_columns(self) -> None:
        names = [f"p{k}" for k in range(70)]
        space = Space([dict.fromkeys(names, at) for at in (1, 2, 3)])
        columns = Columns.of(space, [{f"k{k}": 1 for k in range(70)}])
        kinds = Counter(
            (len(one), any(size >= 0 for size, _ in one), any(p >= 0 for _, p in one))
            for one in columns.sums
        )
        assert set(kinds.values()) == {64}

    def test_a_size_that_is_cut_once_or_not_at_all_counts_the_same(self) -> None:
        columns = Columns.of(Space({"BM": [16, 32]}), [{"M": 1}])
        assert self.row(columns, {"M": 7}, BM=16)[((0, 0),)] == 0.0
        assert self.row(columns, {"M": 17}, BM=16)[((0, 0),)] == 1.0
        assert self.row(columns, {"N": 5}, BM=16)[((0, -1),)] == 0.0

    def test_numbers_that_are_not_positive_and_what_is_no_number_have_their_places(self) -> None:
        space = Space({"pad": [-1, 0, 4], "order": ["rows", "columns", "tiles"]})
        columns = Columns.of(space, [])
        assert self.row(columns, {}, pad=-1, order="tiles") == {((-1, 0),): -2.0, ((-1, 1),): 2.0}
        assert self.row(columns, {}, pad=0, order="rows") == {((-1, 0),): -1.0, ((-1, 1),): 0.0}
        assert self.row(columns, {}, pad=4, order="rows")[((-1, 0),)] == 2.0

    @pytest.mark.parametrize("values", [[0, 16, 32], ["auto", 16, 32], [True, False, 2]])
    def test_only_positive_numbers_cut_a_size(self, values: list[Any]) -> None:
        columns = Columns.of(Space({"BM": values, "BN": [1, 2, 4]}), [{"M": 1, "N": 1}])
        assert ((0, 0),) not in columns.sums
        assert ((1, 1),) in columns.sums
        assert ((-1, 0), (-1, 1)) not in columns.sums

    def test_a_config_without_a_parameter_has_a_place_far_from_all_others(self) -> None:
        space = Space([{"a": 1, "b": 8}, {"a": 2, "b": 4}, {"a": 2}])
        assert self.row(Columns.of(space, []), {}, a=2)[((-1, 1),)] == -9.0

    def test_what_a_target_says_comes_last_and_0_where_it_says_nothing(self) -> None:
        columns = Columns.of(SPACE, [], ["waves", "blocks", "silent"])
        said = {"waves": 2.5, "blocks": math.inf}
        parts = columns.parts([Config(BM=16, stages=1, order="rows")], lambda _: said)
        assert columns.extras == ("blocks", "silent", "waves")
        assert columns.rows({}, parts)[0, -3:].tolist() == [0.0, 0.0, 2.5]
        assert columns.width == len(columns.sums) + 3

    def columns(self) -> dict[str, Any]:
        return {
            "keys": ["M"],
            "parameters": [["BM", [1, 2]]],
            "extras": ["waves"],
            "sums": [[[0, -1]], [[-1, 0], [0, 0]]],
        }

    def test_what_is_kept_comes_back(self) -> None:
        assert Columns.from_json(self.columns()).to_json() == self.columns()

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("keys", ["M", "M"]),
            ("keys", [1]),
            ("keys", "M"),
            ("keys", [str(k) for k in range(257)]),
            ("parameters", [["BM"]]),
            ("parameters", [["BM", [1], 2]]),
            ("parameters", [["BM", [{}]]]),
            ("parameters", [["BM", [1]], ["BM", [1]]]),
            ("parameters", [["BM", list(range(100_001))]]),
            ("parameters", [[f"p{k}", [1]] for k in range(257)]),
            ("sums", [[[0]]]),
            ("sums", [[[0, 0, 0]]]),
            ("sums", [[[0, False]]]),
            ("sums", [[[0.0, 0]]]),
            ("sums", [[[1, 0]]]),
            ("sums", [[[0, 1]]]),
            ("sums", [[[-2, 0]]]),
            ("sums", [[[0, -2]]]),
            ("sums", [[[-1, -1]]]),
            ("sums", [[[0, 0]] * 9]),
            ("sums", [[[0, 0]]] * 513),
        ],
    )
    def test_what_are_no_columns_is_refused(self, name: str, value: Any) -> None:
        with pytest.raises(ValueError, match=r"^(its|one) "):
            Columns.from_json({**self.columns(), name: value})

    @pytest.mark.medium
    def test_columns_at_the_bounds_are_taken(self) -> None:
        names = [str(k) for k in range(256)]
        most = {"keys": names, "extras": names, "sums": [[[255, 255]] * 8] * 512}
        parameters = [[name, [1]] for name in names[:-1]] + [["last", list(range(100_000))]]
        assert Columns.from_json({**most, "parameters": parameters}).width == 512 + 256
