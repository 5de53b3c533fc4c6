"""Which rule of a policy counts: the order of precedence, as properties of any policy."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.core.frozen import FrozenMap
from whet.engine.policy.reading import read_policy
from whet.engine.policy.rules import Pattern, Policy, Rule, Ruling

PART = st.text("ab*?[.", min_size=1, max_size=4)
NAME = st.text("ab[", min_size=1, max_size=4)
MODES = st.sampled_from(["tune", "cached", "require", "off", "record"])


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    rules = draw(
        st.lists(
            st.tuples(
                st.lists(st.builds(Pattern, PART, PART), min_size=1, max_size=2),
                st.dictionaries(st.sampled_from(["mode", "l2", "budget"]), MODES),
            ),
            max_size=8,
        )
    )
    return Policy(
        Path("whet.toml"),
        tuple(Rule(n, tuple(patterns), values) for n, (patterns, values) in enumerate(rules)),  # type: ignore[arg-type]
    )


def matched(pattern: str, text: str) -> bool:
    return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))


@pytest.mark.medium
@given(policies(), NAME, NAME)
def test_the_index_finds_what_a_look_at_every_rule_finds(
    policy: Policy, kernel: str, module: str
) -> None:
    expected: dict[str, tuple[object, object]] = {}
    for rule in policy.rules:
        for pattern in rule.patterns:
            if not matched(pattern.name, kernel) or not matched(pattern.module, module):
                continue
            rank = (*pattern.specificity, rule.number)
            for name, value in rule.values.items():
                if name not in expected or rank >= expected[name][0]:  # type: ignore[operator]
                    expected[name] = (rank, value)
    found = policy.rulings(kernel, [module])
    assert {name: ruling.value for name, ruling in found.items()} == {
        name: value for name, (_, value) in expected.items()
    }


@pytest.mark.medium
@given(policies(), NAME, NAME, MODES)
def test_a_rule_that_names_the_kernel_and_its_module_beats_all_others_wherever_it_stands(
    policy: Policy, kernel: str, module: str, mode: str
) -> None:
    own = Rule(-1, (Pattern(module, kernel),), {"mode": mode})  # type: ignore[arg-type]
    others = [r for r in policy.rules if Pattern(module, kernel) not in r.patterns]
    found = Policy(policy.path, (own, *others)).rulings(kernel, [module])
    assert found["mode"].value == mode
    assert found["mode"].exact


@pytest.mark.medium
@given(policies(), NAME, NAME)
def test_a_rule_about_another_kernel_changes_nothing(
    policy: Policy, kernel: str, module: str
) -> None:
    other = Rule(99, (Pattern("*", f"{kernel}c"),), {"mode": "off", "l2": "warm"})  # type: ignore[arg-type]
    more = Policy(policy.path, (*policy.rules, other))
    assert more.rulings(kernel, [module]) == policy.rulings(kernel, [module])


def values(policy: Policy, kernel: str, modules: list[str]) -> dict[str, Any]:
    return {name: one.value for name, one in policy.rulings(kernel, modules).items()}


def numbered(rules: list[Rule]) -> Policy:
    return Policy(
        Path("whet.toml"), tuple(Rule(n, one.patterns, one.values) for n, one in enumerate(rules))
    )


def rank(ruling: Ruling) -> Any:
    return ruling.pattern.specificity, ruling.rule.number


def best_rank(rule: Rule, kernel: str, module: str) -> Any:
    """Of the patterns that match."""
    ranks = [p.specificity for p in rule.patterns if p.matches(kernel, [module])]
    return max(ranks, default=None)


@pytest.mark.medium
@given(policies(), NAME, NAME)
def test_what_counts_for_a_setting_does_not_depend_on_other_settings(
    policy: Policy, kernel: str, module: str
) -> None:
    whole = values(policy, kernel, [module])
    for name in ("mode", "l2", "budget"):
        alone = [
            Rule(
                rule.number,
                rule.patterns,
                FrozenMap({k: v for k, v in rule.values.items() if k == name}),
            )
            for rule in policy.rules
        ]
        said = values(Policy(policy.path, tuple(alone)), kernel, [module])
        assert said == {k: v for k, v in whole.items() if k == name}


@pytest.mark.slow
@given(policies(), st.randoms(use_true_random=False), NAME, NAME)
def test_the_order_in_the_file_matters_only_between_equally_specific_rules(
    policy: Policy, draws: Any, kernel: str, module: str
) -> None:
    first = [r for r in policy.rules if best_rank(r, kernel, module) is not None]
    distinct = list({best_rank(rule, kernel, module): rule for rule in first}.values())
    shuffled = list(distinct)
    draws.shuffle(shuffled)
    assert values(numbered(distinct), kernel, [module]) == values(
        numbered(shuffled), kernel, [module]
    )


@pytest.mark.medium
@given(policies(), NAME, NAME, MODES)
def test_a_rule_for_everything_only_fills_what_no_other_says(
    policy: Policy, kernel: str, module: str, mode: str
) -> None:
    before = values(policy, kernel, [module])
    general = Rule(-1, (Pattern("*", "*"),), FrozenMap({"mode": mode, "l2": mode}))
    after = values(Policy(policy.path, (general, *policy.rules)), kernel, [module])
    assert after == {"mode": mode, "l2": mode, **before}


@pytest.mark.slow
@given(policies(), NAME, NAME)
def test_a_rule_counts_by_its_most_specific_pattern_that_matches(
    policy: Policy, kernel: str, module: str
) -> None:
    apart = [
        Rule(rule.number, (pattern,), rule.values)
        for rule in policy.rules
        for pattern in rule.patterns
    ]
    assert values(Policy(policy.path, tuple(apart)), kernel, [module]) == values(
        policy, kernel, [module]
    )


@pytest.mark.medium
@given(policies(), NAME, NAME)
def test_writing_a_rule_down_twice_changes_nothing_but_its_place(
    policy: Policy, kernel: str, module: str
) -> None:
    doubled = numbered([rule for rule in policy.rules for _ in range(2)])
    assert values(doubled, kernel, [module]) == values(policy, kernel, [module])


@pytest.mark.medium
@given(policies(), NAME, NAME, NAME)
def test_a_kernel_with_several_names_of_its_module_gets_what_the_best_of_them_would(
    policy: Policy, kernel: str, one: str, two: str
) -> None:
    apart: dict[str, Ruling] = {}
    for module in (one, two):
        for name, ruling in policy.rulings(kernel, [module]).items():
            if name not in apart or rank(ruling) > rank(apart[name]):
                apart[name] = ruling
    assert values(policy, kernel, [one, two]) == {name: r.value for name, r in apart.items()}


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)


@pytest.mark.medium
@given(policies(), TEXTS, TEXTS)
def test_any_name_of_a_kernel_can_be_looked_up(policy: Policy, kernel: str, module: str) -> None:
    for name, ruling in policy.rulings(kernel, [module]).items():
        assert matched(ruling.pattern.name, kernel)
        assert matched(ruling.pattern.module, module)
        assert ruling.rule.values[name] == ruling.value


LINES = {"mode": ["off", "cached"], "l2": ["cold", "warm"], "effort": ["quick", "full"]}


@st.composite
def files(draw: st.DrawFn) -> str:
    """With comments, empty lines and lists over several lines, so that places are worth a test."""
    said = []
    for _ in range(draw(st.integers(1, 5))):
        said += ["", "# [[kernel]]"][: draw(st.integers(0, 2))]
        patterns = [f'"{part}"' for part in draw(st.lists(st.text("ab*?", min_size=1), min_size=1))]
        said += ["[[kernel]]", "match = [", *(f"  {one}," for one in patterns), "]"]
        for name, choices in draw(st.permutations(sorted(LINES.items()))):
            if draw(st.booleans()):
                said.append(f'{name} = "{draw(st.sampled_from(choices))}"  # {name} = "none"')
    return "\n".join(said)


@pytest.mark.medium
@given(files(), st.text("ab", min_size=1, max_size=4))
def test_the_line_that_is_named_is_the_one_that_says_it(
    tmp_path_factory: Any, text: str, kernel: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "precedence.toml"
    path.write_text(text)
    policy = read_policy(path)
    lines = text.split("\n")
    for name, ruling in policy.rulings(kernel, ["m"]).items():
        line = lines[policy.line(ruling.rule, name) - 1]
        assert line.startswith(f'{name} = "{ruling.value}"')
        assert policy.place(ruling.rule, name) == f"{path}:{lines.index(line) + 1}" or (
            lines.count(line) > 1
        )
