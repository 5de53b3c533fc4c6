"""Rules about kernels, and which of them counts.

`chunk_gla_fwd` is a kernel in any module, `fla.ops.*:chunk_*` names both. The most specific rule
wins, for each setting by itself.
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from whet.core.frozen import FrozenMap
from whet.engine.policy.lines import Lines, line_of, rule_lines

TABLE = "kernel"

_WILD = re.compile(r"[*?]")


@dataclass(frozen=True)
class Pattern:
    """`*` stands for any characters, `?` for one."""

    module: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Raises `ValueError` for what is no pattern."""
        module, colon, name = text.strip().rpartition(":")
        if not name or (colon and not module) or ":" in module or re.search(r"\s", text.strip()):
            raise ValueError
        return cls(module or "*", name)

    @property
    def names_kernel(self) -> bool:
        """Whether the kernel's name is written out."""
        return not _WILD.search(self.name)

    @cached_property
    def specificity(self) -> tuple[bool, bool, int]:
        literal = sum(len(_WILD.sub("", part)) for part in (self.module, self.name))
        return self.names_kernel, not _WILD.search(self.module), literal

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """Texts that every kernel of this pattern has in its name or in its module."""
        return tuple(filter(None, (*_WILD.split(self.name), *_WILD.split(self.module))))

    def matches(self, kernel: str, modules: Iterable[str]) -> bool:
        if not self._name_matches(kernel):
            return False
        return self.module == "*" or any(map(self._module_matches, modules))

    @cached_property
    def _name_matches(self) -> Any:
        return _matcher(self.name)

    @cached_property
    def _module_matches(self) -> Any:
        return _matcher(self.module)

    def __str__(self) -> str:
        return self.name if self.module == "*" else f"{self.module}:{self.name}"


def _matcher(pattern: str) -> Any:
    if not _WILD.search(pattern):
        return pattern.__eq__
    # `[` has no meaning here. The translation keeps many stars from taking for ever.
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]"))).match


@dataclass(frozen=True)
class Rule:
    """`number` is its place in the file; `values` are checked, by name of the setting."""

    number: int
    patterns: tuple[Pattern, ...]
    values: FrozenMap[Any]


@dataclass(frozen=True)
class Ruling:
    """What is said about one setting of one kernel, and by which rule. `exact`: the rule names the
    kernel itself, so that what does not fit it is a mistake."""

    value: Any
    rule: Rule
    pattern: Pattern

    @property
    def exact(self) -> bool:
        return self.pattern.names_kernel

    @property
    def rank(self) -> tuple[tuple[bool, bool, int], int]:
        """The greater counts: the more specific, then the later."""
        return self.pattern.specificity, self.rule.number


_Entry = tuple[Pattern, Rule]


@dataclass(frozen=True)
class _SamePattern:
    """Rules with one pattern, in order; `latest` are those that count, by setting."""

    pattern: Pattern
    rules: list[Rule] = field(default_factory=list)
    latest: dict[str, Rule] = field(default_factory=dict)

    def add(self, rule: Rule) -> None:
        self.rules.append(rule)
        self.latest.update(dict.fromkeys(rule.values, rule))


class _Index:
    """There may be thousands of rules, and a kernel's first call waits: each pattern is found by
    that text of its own which the fewest others have."""

    def __init__(self, entries: Iterable[_Entry]) -> None:
        same: dict[Pattern, _SamePattern] = {}
        for pattern, rule in entries:
            same.setdefault(pattern, _SamePattern(pattern)).add(rule)
        common = Counter(text for pattern in same for text in set(pattern.literals))
        self.by_text: dict[str, list[_SamePattern]] = {}
        for pattern, several in same.items():
            rarest = min(pattern.literals, key=lambda text: (common[text], -len(text)), default="")
            self.by_text.setdefault(rarest, []).append(several)
        self._lengths = sorted({len(text) for text in self.by_text})

    def matching(self, kernel: str, modules: Sequence[str]) -> Iterator[_SamePattern]:
        texts = texts_within(self._lengths, kernel, modules)
        for text in texts & self.by_text.keys():
            for one in self.by_text[text]:
                if one.pattern.matches(kernel, modules):
                    yield one


def best_rulings(entries: Iterable[_Entry]) -> Mapping[str, Ruling]:
    """By name of the setting, of rules whose patterns match; in the order of the file."""
    found: dict[str, Ruling] = {}
    for pattern, rule in entries:
        for name, value in rule.values.items():
            ruling = Ruling(value, rule, pattern)
            if name not in found or ruling.rank > found[name].rank:
                found[name] = ruling
    return dict(sorted(found.items(), key=lambda item: item[1].rule.number))


def texts_within(lengths: Sequence[int], kernel: str, modules: Sequence[str]) -> set[str]:
    """All of these lengths that a kernel has in its name or in one of its module's."""
    return {
        text[start : start + length]
        for text in (kernel, *modules)
        for length in lengths
        for start in range(len(text) - length + 1)
    }


@dataclass(frozen=True)
class Policy:
    """`path` is where it was read, `text` what stands there."""

    path: Path
    rules: tuple[Rule, ...]
    text: str = field(default="", repr=False)

    def rulings(self, kernel: str, modules: Sequence[str]) -> Mapping[str, Ruling]:
        """By name of the setting. A stored kernel may go by several names of its module."""
        return best_rulings(
            (one.pattern, rule)
            for one in self.index.matching(kernel, modules)
            for rule in {rule.number: rule for rule in one.latest.values()}.values()
        )

    def matching(self, kernel: str, modules: Sequence[str]) -> list[_Entry]:
        """The most specific last; of equals, the one that stands later."""
        found = [
            (one.pattern, rule)
            for one in self.index.matching(kernel, modules)
            for rule in one.rules
        ]
        return sorted(found, key=lambda entry: (entry[0].specificity, entry[1].number))

    @cached_property
    def index(self) -> _Index:
        return _Index(self.entries())

    def entries(self) -> Iterator[_Entry]:
        for rule in self.rules:
            for pattern in rule.patterns:
                yield pattern, rule

    def line(self, rule: Rule, setting: str = "match") -> int:
        return line_of(self._lines, rule.number, setting.partition(".")[0])

    def place(self, rule: Rule, setting: str = "match") -> str:
        return f"{self.path}:{self.line(rule, setting)}"

    @cached_property
    def _lines(self) -> Lines:
        return rule_lines(self.text, TABLE)
