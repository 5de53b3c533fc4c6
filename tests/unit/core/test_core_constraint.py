import ast
import functools

import pytest

from whet.core.config import Config
from whet.core.errors import SpaceError
from whet.core.space import Permutation, Space


def valid(spec: object, *constraints: object) -> list[str]:
    return [str(config) for config in Space(spec, constraints)]  # type: ignore[arg-type]


class TestExpressions:
    @pytest.mark.parametrize(
        ("expression", "kept"),
        [
            ("a % 2 == 0", [2, 4, 6]),
            ("2 < a <= 5", [3, 4, 5]),
            ("a in (1, 6)", [1, 6]),
            ("a not in [1, 2, 3]", [4, 5, 6]),
            ("not a > 2", [1, 2]),
            ("a == 1 or a == 3", [1, 3]),
            ("(a if a > 3 else -a) > 4", [5, 6]),
            ("a << 1 >= 10", [5, 6]),
            ("a & 1", [1, 3, 5]),
            ("a ** 2 > 20", [5, 6]),
            ("is_pow2(a)", [1, 2, 4]),
            ("gcd(a, 6) == 2", [2, 4]),
            ("ceil_div(a, 4) == 2", [5, 6]),
            ("min(a, 3) + max(a, 5) == 8", [3, 4, 5]),
            ("log2(a) == int(log2(a))", [1, 2, 4]),
            ("sum((a, a, 1)) == 9", [4]),
            ("any((a == 2, a == 5)) and all((a > 2, a < 9))", [5]),
            ("abs(a - 4) <= 1", [3, 4, 5]),
            ("round(a / 2) == 2", [3, 4, 5]),
            ("(7, 8, 9)[a % 3] == 8", [1, 4]),
            ("len((a, 1)) == 2 and a == 1", [1]),
        ],
    )
    def test_mean_what_they_mean_in_python(self, expression: str, kept: list[int]) -> None:
        space = Space({"a": [1, 2, 3, 4, 5, 6]}, [expression])
        assert [config["a"] for config in space] == kept

    def test_read_the_items_of_an_order(self) -> None:
        space = Space([Permutation("loops", "mnk")], ["loops[0] == 'm'", "index(loops, 'k') == 1"])
        assert [config["loops"] for config in space] == [("m", "k", "n")]

    def test_are_split_at_each_top_level_and(self) -> None:
        space = Space({"a": [1, 2], "b": [1, 2]}, ["a > 1 and (b<2 and a!=b)"])
        assert space.constraints == ("a > 1", "b < 2", "a != b")

    def test_division_by_zero_does_not_hold(self) -> None:
        assert valid({"a": [4], "b": [0, 2, 3]}, "a % b == 0") == ["a=4 b=2"]

    def test_division_by_zero_that_python_would_skip_is_skipped(self) -> None:
        assert valid({"b": [0, 3], "a": [4]}, "b == 0 or a % b == 1") == ["b=0 a=4", "b=3 a=4"]

    def test_division_by_zero_is_skipped_though_its_operands_are_bound_first(self) -> None:
        spec = {"a": [4], "b": [0, 3], "c": [0, 1]}
        assert valid(spec, "c == 0 or a % b == 1") == ["a=4 b=0 c=0", "a=4 b=3 c=0", "a=4 b=3 c=1"]

    def test_division_by_zero_counts_though_the_rest_would_decide(self) -> None:
        spec = {"a": [4], "b": [0, 3], "c": [0, 1]}
        assert valid(spec, "a % b == 9 or c >= 0") == ["a=4 b=3 c=0", "a=4 b=3 c=1"]

    @pytest.mark.medium
    def test_a_conjunct_is_guarded_by_those_before_it(self) -> None:
        spec = {"tile": [None, 16, 32], "mode": ["plain", "tiled"]}
        assert valid(spec, "(tile, mode) in ((16, 'tiled'), (32, 'tiled')) and tile > 16") == [
            "tile=32 mode=tiled"
        ]

    def test_floats_are_added_in_the_order_they_are_written_in(self) -> None:
        assert 0.3 + 0.2 + 0.1 == 0.6 != 0.1 + 0.2 + 0.3
        spec = {"a": [0.1, 5.5], "b": [0.2, 5.5], "c": [0.3, 5.5]}
        assert valid(spec, "c + b + a == 0.6") == ["a=0.1 b=0.2 c=0.3"]

    def test_differences_of_floats_reach_their_extremes(self) -> None:
        spec = {"a": [3.0], "b": [1.5, 3.5], "c": [0.25, 0.75]}
        assert valid(spec, "a <= b - c") == ["a=3.0 b=3.5 c=0.25"]

    def test_a_constant_conjunct_counts(self) -> None:
        assert valid({"a": [1, 2]}, "1 < 2 and a > 1") == ["a=2"]
        assert valid({"a": [1, 2]}, "2 < 1 and a > 1") == []

    def test_one_string_is_one_constraint(self) -> None:
        assert [config["a"] for config in Space({"a": [1, 2]}, "a > 1")] == [2]


class TestBadExpressions:
    def test_an_unknown_name_is_named_with_the_nearest_and_all_valid_ones(self) -> None:
        with pytest.raises(
            SpaceError, match="unknown parameter 'BMM'; did you mean 'BM'\\? valid: BM, BN"
        ):
            Space({"BM": [1], "BN": [2]}, ["BMM > BN"])

    def test_an_unknown_function_is_named_with_the_nearest(self) -> None:
        with pytest.raises(SpaceError, match="unknown function 'maxx'; did you mean 'max'"):
            Space({"a": [1]}, ["maxx(a, 2) > 1"])

    def test_a_syntax_error_shows_the_expression_and_the_position(self) -> None:
        with pytest.raises(SpaceError, match="'a %% 2 == 0' has a syntax error at column 4"):
            Space({"a": [1]}, ["a %% 2 == 0"])

    @pytest.mark.parametrize(
        "expression",
        [
            "a.__class__",
            "__import__('os').system('true')",
            "open('/etc/passwd')",
            "(lambda: a)()",
            "[x for x in (1, 2)] == a",
            "f'{a}' == '1'",
            "a is 1",
            "(b := a) > 1",
            "max(*(a, 1)) > 1",
            "min((a, 1), key=abs) > 0",
            "a == ...",
            "a == 1j",
            "a == b'x'",
            "a < 1e999",
            "min > 1",
            "{1: a}[1] > 0",
        ],
    )
    def test_anything_outside_the_grammar_is_refused(self, expression: str) -> None:
        with pytest.raises(SpaceError, match="constraint"):
            Space({"a": [1, 2]}, [expression])

    @pytest.mark.parametrize(
        "expression",
        [
            "9 ** 9 ** 9 > a",
            "1 << 10 ** 9 > a",
            "'x' * 10 ** 9 != a",
            "10 ** 9 * [0] != a",
            "(a, a) * 10 ** 9 != a",
            "'%1000000000d' % a != ''",
            "round(a, -10 ** 9) > 1",
            "2 ** (a * 10 ** 6) > 1",
        ],
    )
    def test_a_result_of_hostile_size_is_an_error_and_not_computed(self, expression: str) -> None:
        with pytest.raises(SpaceError, match=r"constraint .* fails for a=5"):
            list(Space({"a": [5]}, [expression]))

    @pytest.mark.parametrize(
        "expression",
        ["-" * 1500 + "a", "(" * 250 + "a" + ")" * 250, "a" + "+a" * 900, "not " * 400 + "a"],
    )
    def test_deep_nesting_is_refused(self, expression: str) -> None:
        with pytest.raises(SpaceError):
            Space({"a": [1]}, [expression])

    def test_an_endless_expression_is_refused(self) -> None:
        with pytest.raises(SpaceError, match="characters, more than 2000"):
            Space({"a": [1]}, ["a == 1 or " * 1000 + "a == 2"])

    @pytest.mark.parametrize("constraint", ["", "  ", "1 < 2", 5, None])
    def test_what_is_no_constraint_is_refused(self, constraint: object) -> None:
        with pytest.raises(SpaceError, match="constraint"):
            Space({"a": [1]}, [constraint])  # type: ignore[list-item]

    def test_an_exception_names_the_constraint_the_values_and_itself(self) -> None:
        with pytest.raises(SpaceError, match="constraint 'a < b' fails for a=1 b=x: TypeError: "):
            list(Space({"a": [1], "b": ["x"], "c": [1]}, ["a < b"]))


class TestPredicates:
    def test_take_the_parameters_their_arguments_name(self) -> None:
        assert valid({"a": [1, 2], "b": [1, 2]}, lambda b, a: a < b) == ["a=1 b=2"]

    def test_take_parameters_by_keyword(self) -> None:
        def ascending(*, b: int, a: int) -> bool:
            return a < b

        assert valid({"a": [1, 2], "b": [1, 2]}, ascending) == ["a=1 b=2"]

    def test_keep_the_defaults_of_other_arguments(self) -> None:
        assert valid({"a": [1, 2, 3]}, lambda a, limit=2: a <= limit) == ["a=1", "a=2"]

    def test_take_the_whole_config_as_one_argument(self) -> None:
        def ascending(config: Config) -> bool:
            assert isinstance(config, Config)
            return list(config.values()) == [1, 2]

        assert valid({"a": [1, 2], "b": [1, 2]}, ascending) == ["a=1 b=2"]

    def test_take_all_parameters_as_keywords(self) -> None:
        assert valid({"a": [1, 2], "b": [1, 2]}, lambda **all_: sum(all_.values()) == 4) == [
            "a=2 b=2"
        ]

    def test_a_misspelt_argument_is_named_with_the_nearest(self) -> None:
        with pytest.raises(
            SpaceError, match="unknown parameter 'BNN'; did you mean 'BN'\\? valid: BM, BN"
        ):
            Space({"BM": [1], "BN": [2]}, [lambda BM, BNN: BM < BNN])  # noqa: N803

    def test_one_that_takes_nothing_is_refused(self) -> None:
        with pytest.raises(SpaceError, match="takes no parameter; valid: a"):
            Space({"a": [1]}, [lambda: True])

    def test_an_exception_names_the_function_the_values_and_itself(self) -> None:
        def fits(a: int, b: int) -> bool:
            return a / b > 1

        with pytest.raises(
            SpaceError, match=r"'fits\(a, b\)' fails for a=1 b=0: ZeroDivisionError"
        ):
            list(Space({"a": [1], "b": [0]}, [fits]))

    def test_tell_one_from_true(self) -> None:
        spec = {"a": [1, True], "b": [1, 2]}
        kept = Space(spec, [lambda a, b: isinstance(a, bool) and b == 2])
        assert [config.json for config in kept] == ['{"a":true,"b":2}']
        assert kept.count == 1


class TestIdentity:
    def test_ignores_how_an_expression_is_spaced(self) -> None:
        spec = {"a": [1, 2], "b": [1, 2]}
        assert Space(spec, ["a<b"]).id == Space(spec, ["a  <  b"]).id

    def test_follows_the_source_of_a_predicate(self) -> None:
        spec = {"a": [1, 2]}

        def small(a: int) -> bool:
            return a < 2

        def large(a: int) -> bool:
            return a >= 2

        assert Space(spec, [small]).id == Space(spec, [small]).id
        assert Space(spec, [small]).id != Space(spec, [large]).id

    def test_follows_what_a_predicate_closes_over(self) -> None:
        def below(limit: int) -> object:
            return lambda a: a < limit

        spec = {"a": [1, 2]}
        assert Space(spec, [below(1)]).id != Space(spec, [below(2)]).id  # type: ignore[list-item]

    def test_follows_the_arguments_of_a_partial(self) -> None:
        def below(limit: int, a: int) -> bool:
            return a < limit

        spec = {"a": [1, 2]}
        one, two = (Space(spec, [functools.partial(below, limit)]) for limit in (1, 2))
        assert one.id != two.id

    def test_follows_the_code_where_there_is_no_source(self) -> None:
        spec = {"a": [1, 2]}
        one, same, other = (
            Space(spec, [eval(source)])
            for source in ("lambda a: a < 1", "lambda a: a < 1", "lambda a: a < 2")
        )
        assert one.id == same.id
        assert one.id != other.id


def test_what_is_not_in_the_grammar_is_refused_before_it_is_written_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unparse(node: ast.AST) -> str:
        raise AssertionError("an f-string is written with codecs that are imported for it")

    monkeypatch.setattr(ast, "unparse", unparse)
    with pytest.raises(SpaceError, match="constraint"):
        Space({"a": [1, 2]}, constraints=["f'\\x0b' == a"])
