import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.core.config import Config
from whet.core.errors import SpaceError
from whet.core.space import Categorical, Ordered, Permutation, Space


def texts(space: Space) -> list[str]:
    return [str(config) for config in space]


def divisor_chain(length: int) -> Space:
    """Each of the parameters must divide the one before."""
    names = [f"p{at}" for at in range(length)]
    constraints = [f"{one} % {next_} == 0" for one, next_ in itertools.pairwise(names)]
    return Space({name: range(1, 33) for name in names}, constraints)


class TestIterating:
    def test_gives_the_valid_configs_with_the_first_parameter_slowest(self) -> None:
        space = Space({"a": [1, 2, 4], "b": [1, 2]}, constraints=["a % b == 0"])
        assert texts(space) == ["a=1 b=1", "a=2 b=1", "a=2 b=2", "a=4 b=1", "a=4 b=2"]

    def test_keeps_the_authors_order_of_values(self) -> None:
        assert texts(Space({"a": [64, 16, 32]})) == ["a=64", "a=16", "a=32"]

    def test_can_be_repeated(self) -> None:
        space = Space({"a": [1, 2], "b": [3, 4]}, ["a + b > 4"])
        assert list(space) == list(space)

    def test_keeps_the_order_where_constraints_connect_distant_parameters(self) -> None:
        spec = {"a": range(4), "x": range(3), "b": range(4), "y": range(3)}
        space = Space(spec, ["a == b", "x != y"])
        expected = [
            dict(zip(spec, values, strict=True))
            for values in itertools.product(*spec.values())
            if values[0] == values[2] and values[1] != values[3]
        ]
        assert [dict(config) for config in space] == expected

    @pytest.mark.medium
    def test_follows_the_valid_prefixes_and_not_the_product(self) -> None:
        space = divisor_chain(8)
        configs = list(space)
        assert len(configs) == len(set(configs)) == space.count == 4631
        assert all(config in space for config in configs)

    @pytest.mark.medium
    def test_is_not_misled_by_an_unfortunate_order_of_parameters(self) -> None:
        names = ["p3", "p7", "p0", "p5", "p1", "p6", "p2", "p4"]
        chain = [f"p{at} % p{at + 1} == 0" for at in range(7)]
        configs = list(Space({name: range(1, 33) for name in names}, chain))
        assert len(configs) == 4631
        keys = [tuple(config[name] for name in names) for config in configs]
        assert keys == sorted(keys)

    def test_finds_the_first_config_behind_many_dead_ends(self) -> None:
        names = [f"p{at}" for at in range(10)]
        space = Space({name: range(32) for name in names}, [f"{' + '.join(names)} == 310"])
        assert space.first == Config(dict.fromkeys(names, 31))

    @pytest.mark.medium
    def test_goes_on_without_a_length_where_the_space_cannot_be_counted(self) -> None:
        space = Space({f"p{at}": range(32) for at in range(8)}, [lambda **all_: True])
        assert space.count is None
        assert [config["p7"] for config in itertools.islice(space, 3)] == [0, 1, 2]


class TestForms:
    def test_typed_parameters(self) -> None:
        space = Space([Ordered("a", [1, 2]), Categorical("b", ["x"]), Permutation("c", "mn")])
        assert space.names == ("a", "b", "c")
        assert space.count == 4

    def test_a_dict_may_hold_typed_parameters(self) -> None:
        space = Space({"a": [1, 2], "c": Permutation("c", "mn")})
        assert isinstance(space.parameters[1], Permutation)

    def test_a_list_of_configs_keeps_its_order_and_drops_duplicates(self) -> None:
        space = Space([{"a": 2}, Config(a=1), {"a": 2}])
        assert texts(space) == ["a=2", "a=1"]

    def test_a_list_of_configs_may_be_ragged(self) -> None:
        space = Space([{"a": 1}, {"a": 1, "b": 2}, {}])
        assert space.names == ("a", "b")
        assert len(space) == 3

    def test_constraints_apply_to_a_list_where_their_parameters_are_present(self) -> None:
        space = Space([{"a": 1}, {"a": 1, "b": 2}, {"a": 3, "b": 2}], ["a < b"])
        assert texts(space) == ["a=1", "a=1 b=2"]

    def test_a_predicate_on_whole_configs_applies_to_all_of_a_list(self) -> None:
        assert texts(Space([{"a": 1}, {"b": 1}], lambda config: "a" in config)) == ["a=1"]

    @pytest.mark.parametrize(
        ("spec", "says"),
        [
            *[(spec, "is not a space; give a dict of lists") for spec in (5, "a", None)],
            (Ordered("a", [1]), "is not a space; give a dict of lists"),
            ([{"a": 1}, 7], "7 is neither a config nor a parameter"),
            ([{"a": 1}, Ordered("b", [1])], "cannot mix"),
            ([Ordered("a", [1]), Ordered("a", [2])], "'a' is given twice"),
            ({"b": Ordered("a", [1])}, "'a' is listed under a different name, 'b'"),
            ({"a": 5}, r"'a' is 5; give a list of values: \[5\]"),
        ],
    )
    def test_what_is_no_space_is_refused_with_what_is_wrong(self, spec: Any, says: str) -> None:
        with pytest.raises(SpaceError, match=says):
            Space(spec)


class TestWithoutValidConfigs:
    @pytest.mark.parametrize("spec", [{}, [], iter([]), {"a": []}, {"a": [1], "b": []}])
    def test_nothing_to_choose_from_is_legal_and_empty(self, spec: Any) -> None:
        space = Space(spec)
        assert space.first is None
        assert space.count == len(space) == 0
        assert list(space) == space.sample(np.random.default_rng(0), 3) == []
        assert Config(a=1) not in space
        assert space.is_small(0)
        assert space.id == pickle.loads(pickle.dumps(space)).id

    @pytest.mark.parametrize("spec", [{"a": [1, 2]}, [{"a": 1}, {"a": 2}]])
    def test_is_legal_and_empty(self, spec: Any) -> None:
        space = Space(spec, ["a > 5"])
        assert space.first is None
        assert space.count == len(space) == 0
        assert not space
        assert list(space) == []
        assert space.sample(np.random.default_rng(0), 3) == []
        assert space.sample(np.random.default_rng(0), 3, replace=True) == []

    def test_is_seen_at_once_though_other_parameters_are_free(self) -> None:
        free = {f"p{at}": range(100) for at in range(12)}
        space = Space({**free, "z": [1, 2]}, ["z > 5"])
        assert space.count == 0
        assert space.first is None

    @pytest.mark.medium
    def test_is_known_though_the_rest_cannot_be_counted(self) -> None:
        rest = {f"p{at}": range(32) for at in range(8)}

        def unknown(p0, p1, p2, p3, p4, p5, p6, p7):  # type: ignore[no-untyped-def]
            return True

        assert Space({**rest, "z": [1, 2]}, [unknown, "z > 5"]).count == 0


class TestSize:
    def test_is_exact_far_beyond_what_can_be_enumerated(self) -> None:
        space = Space({f"p{at}": range(100) for at in range(12)}, ["p0 < p1"])
        assert space.count == 4950 * 100**10
        with pytest.raises(SpaceError, match="too many for len"):
            len(space)

    @pytest.mark.medium
    def test_is_unknown_where_only_a_call_can_tell(self) -> None:
        space = Space({f"p{at}": range(32) for at in range(8)}, [lambda **all_: True])
        assert space.count is None
        assert not space.exact_sampling
        with pytest.raises(SpaceError, match="too large to count"):
            len(space)

    def test_is_small_needs_no_enumeration(self) -> None:
        space = divisor_chain(8)
        assert space.is_small(4631)
        assert not space.is_small(4630)
        assert not Space({f"p{at}": range(100) for at in range(12)}).is_small(10**6)

    def test_is_small_counts_a_list(self) -> None:
        assert Space([{"a": 1}, {"a": 2}]).is_small(2)
        assert not Space([{"a": 1}, {"a": 2}]).is_small(1)

    @pytest.mark.medium
    def test_is_small_does_not_claim_what_it_cannot_tell(self) -> None:
        names = {f"p{at}": range(32) for at in range(8)}
        assert not Space(names, [lambda **all_: True]).is_small(1000)
        assert not Space(names, [lambda **all_: False]).is_small(1000)


class TestMembership:
    space = Space({"BM": [16, 32, 64], "BN": [16, 32]}, ["BM >= BN"])

    def test_holds_the_valid_configs_only(self) -> None:
        assert Config(BM=32, BN=16) in self.space
        assert {"BN": 16, "BM": 32} in self.space
        assert Config(BM=16, BN=32) not in self.space
        assert "BM" not in self.space

    def test_tells_one_from_true_and_from_one_point_zero(self) -> None:
        space = Space({"a": [1, 2]})
        assert Config(a=1) in space
        assert Config(a=True) not in space
        assert Config(a=1.0) not in space

    @pytest.mark.parametrize(
        ("config", "reason"),
        [
            ({"BM": 32, "BN": 16}, None),
            ({"BM": 32, "BNN": 16}, "unknown parameter 'BNN'; did you mean 'BN'? valid: BM, BN"),
            ({"BM": 32}, "parameter 'BN' is missing"),
            ({"BM": 48, "BN": 16}, "BM=48 is not a possible value; valid: 16, 32, 64"),
            ({"BM": 16, "BN": 32}, "breaks the constraint 'BM >= BN'"),
        ],
    )
    def test_is_explained(self, config: dict[str, Any], reason: str | None) -> None:
        assert self.space.explain(config) == reason

    @pytest.mark.parametrize(
        ("config", "reason"),
        [
            ({"a": 1, "b": 1}, None),
            ({"a": 2}, None),
            ({"c": 1}, "unknown parameter 'c'; valid: a, b"),
            ({"a": 3, "b": 1}, "a=3 is not a possible value; valid: 1, 2, 9"),
            ({"b": 1}, "parameter 'a' is missing"),
            ({"a": 2, "b": 1}, "this combination is not among the 3 listed configs"),
            ({"a": 9, "b": 2}, "breaks the constraint 'a < 5'"),
        ],
    )
    def test_is_explained_in_a_list(self, config: dict[str, Any], reason: str | None) -> None:
        space = Space([{"a": 1, "b": 1}, {"a": 2}, {"a": 9, "b": 2}], ["a < 5"])
        assert space.explain(config) == reason


class TestNeighbours:
    def test_are_one_move_of_one_parameter_away_and_valid(self) -> None:
        space = Space({"a": [1, 2, 4, 8], "b": ["x", "y", "z"]}, ["a != 8 or b == 'x'"])
        assert [str(config) for config in space.neighbours(Config(a=4, b="y"))] == [
            "a=2 b=y",
            "a=4 b=x",
            "a=4 b=z",
        ]

    def test_in_a_list_differ_in_exactly_one_parameter(self) -> None:
        space = Space([{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}, {"a": 1}])
        assert space.neighbours(Config(a=1, b=1)) == [Config(a=1, b=2), Config(a=1)]

    def test_of_a_foreign_config_are_refused(self) -> None:
        space = Space({"a": [1, 2]})
        with pytest.raises(SpaceError, match="a=3 is not a possible value"):
            space.neighbours(Config(a=3))
        with pytest.raises(SpaceError, match="unknown parameter 'b'"):
            space.neighbours(Config(a=1, b=1))


class TestEncoding:
    def test_has_a_row_a_config_and_a_named_column_a_number(self) -> None:
        space = Space({"a": [1, 4, 16], "b": ["x", "y"]})
        assert space.columns == ("a", "b=x", "b=y")
        encoded = space.encode([Config(a=1, b="y"), Config(a=4, b="x")])
        assert encoded.dtype == np.float64
        assert encoded.tolist() == [[0.0, 0.0, 1.0], [0.5, 1.0, 0.0]]

    def test_of_no_configs_has_no_rows_but_all_columns(self) -> None:
        assert Space({"a": [1, 4], "b": ["x", "y"]}).encode([]).shape == (0, 3)

    def test_marks_what_a_ragged_config_lacks(self) -> None:
        space = Space([{"a": 1, "b": 3}, {"a": 2}])
        assert space.columns == ("a", "b", "b?")
        assert space.encode(space).tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]

    def test_refuses_a_foreign_config(self) -> None:
        with pytest.raises(SpaceError, match="parameter 'a' is missing"):
            Space({"a": [1]}).encode([{}])
        with pytest.raises(SpaceError, match="a=2 is not a possible value"):
            Space({"a": [1]}).encode([{"a": 2}])


class TestIdentity:
    def test_depends_on_names_kinds_values_and_constraints(self) -> None:
        spaces = [
            Space({"a": [1, 2], "b": [1, 2]}),
            Space({"a": [2, 1], "b": [1, 2]}),
            Space({"a": [1, 2], "c": [1, 2]}),
            Space({"a": [1, 2, 3], "b": [1, 2]}),
            Space({"a": [1, 2], "b": Categorical("b", [1, 2])}),
            Space({"a": [1, 2], "b": [1, 2]}, ["a < b"]),
            Space({"a": [1, 2], "b": [1, 2]}, ["a <= b"]),
        ]
        assert len({space.id for space in spaces}) == len(spaces)

    def test_is_the_same_in_every_process(self) -> None:
        assert Space({"a": [1, 2], "b": ["x"]}, ["a > 1"]).id == "48d29d76e5608ad3"

    def test_of_a_list_ignores_the_order(self) -> None:
        assert Space([{"a": 1}, {"a": 2}]).id == Space([{"a": 2}, {"a": 1}, {"a": 1}]).id
        assert Space([{"a": 1}, {"a": 2}]).id != Space([{"a": 1}]).id

    def test_survives_pickling(self) -> None:
        for space in (Space({"a": [1, 2], "b": [1, 2]}, ["a < b"]), Space([{"a": 1}], ["a > 0"])):
            copy = pickle.loads(pickle.dumps(space))
            assert list(copy) == list(space)
            assert copy.id == space.id
            assert copy.constraints == space.constraints


class TestAddingConfigs:
    def test_to_a_list_puts_them_last(self) -> None:
        space = Space([{"a": 2}, {"a": 9}], ["a < 5"]).with_configs([{"a": 7}])
        assert texts(space) == ["a=2", "a=7"]

    def test_to_a_small_space_makes_it_a_list(self) -> None:
        space = Space({"a": [1, 2]}).with_configs([{"a": 3, "b": 4}])
        assert texts(space) == ["a=1", "a=2", "a=3 b=4"]

    def test_to_a_huge_space_is_refused(self) -> None:
        with pytest.raises(SpaceError, match="configs can only be added to a space of at most"):
            Space({f"p{at}": range(100) for at in range(6)}).with_configs([{"p0": 1}])


NAMES = ("a", "b", "c", "d")
DOMAINS = st.sampled_from(
    [[1, 2, 4], [0, 1, 2, 3], [-2, 0, 3], [8, 4, 16], [0.5, 2], [True, False], [5, 1, 5.0]]
)


def numbers(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(NAMES) | st.sampled_from(["0", "1", "2", "5", "0.5", "16"])
    if depth == 0:
        return leaf
    inner = numbers(depth - 1)
    return st.one_of(
        leaf,
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner),
        st.builds("(-{})".format, inner),
        st.builds("({} if {} else {})".format, inner, truths(depth - 1), inner),
    )


def truths(depth: int) -> st.SearchStrategy[str]:
    inner = numbers(depth)
    comparison = st.builds(
        "{} {} {}".format, inner, st.sampled_from(["<", "<=", "==", "!=", ">=", ">"]), inner
    )
    if depth == 0:
        return comparison
    return st.one_of(
        comparison,
        st.builds("({} <= {} < {})".format, inner, inner, inner),
        st.builds("(not {})".format, truths(depth - 1)),
        st.builds(
            "({} {} {})".format,
            truths(depth - 1),
            st.sampled_from(["and", "or"]),
            truths(depth - 1),
        ),
    )


def holds(expression: str, values: dict[str, Any]) -> bool:
    try:
        return bool(eval(expression, {"min": min, "max": max}, values))
    except ZeroDivisionError:
        return False


@pytest.mark.slow
@settings(max_examples=150)
@given(st.fixed_dictionaries(dict.fromkeys(NAMES, DOMAINS)), st.lists(truths(2), max_size=3))
def test_listing_counting_and_sampling_agree_with_brute_force(
    spec: dict[str, list[Any]], expressions: list[str]
) -> None:
    expressions = [f"a == a and ({expression})" for expression in expressions]
    everything = (
        dict(zip(spec, choice, strict=True)) for choice in itertools.product(*spec.values())
    )
    expected = [
        Config(values)
        for values in everything
        if all(holds(expression, values) for expression in expressions)
    ]
    space = Space(spec, expressions)
    assert list(space) == expected
    assert space.count == len(expected)
    drawn = space.sample(np.random.default_rng(0), len(expected) + 1)
    assert len(drawn) == len(expected)
    assert set(drawn) == set(expected)
