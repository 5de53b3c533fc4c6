"""What is wrong with a policy beyond its spelling: rules for nobody, and rules that disagree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations
from pathlib import PurePath

from whet.core.miss import Miss
from whet.core.workload import Workload
from whet.engine.policy.rules import Pattern, Policy, Rule


@dataclass(frozen=True)
class KnownKernel:
    """`modules` are the names its module may have: of a stored kernel often only the file is known.
    `keys` are the arguments in its key, empty where they are not known."""

    name: str
    modules: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.modules[0]}:{self.name}" if self.modules else self.name


@dataclass(frozen=True)
class PolicyProblem:
    line: int
    text: str


def stored_kernels(workloads: Iterable[Workload], missed: Iterable[Miss]) -> list[KnownKernel]:
    """Kernels of a store, each once."""
    modules: dict[str, dict[str, None]] = {}
    keys: dict[str, dict[str, None]] = {}
    for miss in missed:
        found = modules.setdefault(miss.workload.kernel, {})
        if miss.module:
            found[miss.module] = None
        for place in () if miss.module else (miss.where, *miss.workload.origin.places):
            found.update(dict.fromkeys(modules_of(place) if place else ()))
        keys.setdefault(miss.workload.kernel, {}).update(dict.fromkeys(miss.workload.key))
    for workload in workloads:
        found = modules.setdefault(workload.kernel, {})
        for place in workload.origin.places:
            found.update(dict.fromkeys(modules_of(place)))
        keys.setdefault(workload.kernel, {}).update(dict.fromkeys(workload.key))
    return [
        KnownKernel(name, tuple(found), tuple(key for key in keys[name] if "." not in key))
        for name, found in modules.items()
    ]


def modules_of(place: str) -> Iterator[str]:
    """`/env/lib/fla/ops/gla.py:k` may be `gla`, `ops.gla`, `fla.ops.gla` and so on."""
    file = PurePath(place.rpartition(":")[0] or place)
    parts = [part for part in file.with_suffix("").parts if part != file.anchor]
    if parts and parts[-1] == "__init__":
        parts.pop()
    for start in reversed(range(len(parts))):
        yield ".".join(parts[start:])


def problems(policy: Policy, kernels: Sequence[KnownKernel]) -> list[PolicyProblem]:
    """In the order of the file. Without kernels, only what needs none to be told."""
    found = [*_contradictions(policy, kernels)]
    if kernels:
        found += _unmatched(policy, kernels)
    return sorted(found, key=lambda problem: (problem.line, problem.text))


def _unmatched(policy: Policy, kernels: Sequence[KnownKernel]) -> Iterator[PolicyProblem]:
    met = {
        (pattern, rule.number)
        for one in kernels
        for pattern, rule in policy.matching(one.name, one.modules)
    }
    for pattern, rule in policy.entries():
        if (pattern, rule.number) not in met:
            text = f"'{pattern}' matches no known kernel{_likely(pattern, kernels)}"
            yield PolicyProblem(policy.line(rule), text)


def _likely(pattern: Pattern, kernels: Sequence[KnownKernel]) -> str:
    """What may have been meant: a kernel of nearly that name, or a module that has such kernels."""
    names = {str(one): str(one) for one in kernels} | {one.name: one.name for one in kernels}
    close = get_close_matches(str(pattern), names, n=1, cutoff=0.7)
    if close:
        return f"; did you mean '{close[0]}'?"
    alike = Pattern("*", pattern.name)
    known = [one for one in kernels if len(one.modules) == 1]  # of stored ones it is a guess
    modules = [one.modules[0] for one in known if alike.matches(one.name, ())]
    by_lower = {module.lower(): module for module in modules}
    module = pattern.module.replace("*", "").replace("?", "").strip(".").lower()
    found = get_close_matches(module, by_lower, n=1, cutoff=0.6)
    if found:
        return f"; did you mean module '{by_lower[found[0]]}'?"
    if modules and not pattern.name.startswith("*"):
        return f"; kernels of that name are in '{modules[0]}'"
    return ""


def _contradictions(policy: Policy, kernels: Sequence[KnownKernel]) -> Iterator[PolicyProblem]:
    """Each pair of rules once for each setting, with one kernel that both are about."""
    told: dict[tuple[int, int, str], PolicyProblem] = {}
    for one, two, setting, about in (*_same(policy), *_both(policy, kernels)):
        if one.number == two.number or one.values[setting] == two.values[setting]:
            continue
        first, last = sorted((one, two), key=lambda rule: rule.number)
        line = policy.line(last, setting)
        text = (
            f"{setting} disagrees with line {policy.line(first, setting)}: both rules are about "
            f"{about} and equally specific; this one counts"
        )
        told.setdefault((first.number, last.number, setting), PolicyProblem(line, text))
    yield from told.values()


_Pair = tuple[Rule, Rule, str, str]


def _same(policy: Policy) -> Iterator[_Pair]:
    """Rules with the very same pattern, which disagree whatever the kernels are."""
    by_pattern: dict[Pattern, list[Rule]] = {}
    for pattern, rule in policy.entries():
        by_pattern.setdefault(pattern, []).append(rule)
    for pattern, rules in by_pattern.items():
        for one, two in combinations(rules, 2):
            for setting in one.values.keys() & two.values.keys():
                yield one, two, setting, f"'{pattern}'"


def _both(policy: Policy, kernels: Sequence[KnownKernel]) -> Iterator[_Pair]:
    """Where the most specific rules for a setting are several."""
    for kernel in kernels:
        entries = policy.matching(kernel.name, kernel.modules)
        for setting, ruling in policy.rulings(kernel.name, kernel.modules).items():
            for pattern, rule in entries:
                if setting in rule.values and pattern.specificity == ruling.pattern.specificity:
                    yield rule, ruling.rule, setting, f"'{kernel.name}'"
