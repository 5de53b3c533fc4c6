"""Rules about kernels, and which of them counts.

`chunk_gla_fwd` is a kernel in any module, `fla.ops.*:chunk_*` names both. The most specific rule
wins, for each setting by itself.
"""

from __future__ import annotations

import fnmatch
import re
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
    def literal(self) -> str:
        """A text that every kernel of this pattern has in its name, or else in its module."""
        return max(_WILD.split(self.name), key=len) or max(_WILD.split(self.module), key=len)

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


_Entry = tuple[Pattern, Rule]


class _Starts:
    """Entries by how a text must start."""

    def __init__(self) -> None:
        self._entries: dict[str, list[_Entry]] = {}
        self._lengths: set[int] = set()

    def add(self, start: str, entry: _Entry) -> None:
        self._entries.setdefault(start, []).append(entry)
        self._lengths.add(len(start))

    def starting(self, texts: Iterable[str]) -> Iterator[_Entry]:
        for start in {text[:length] for text in texts for length in self._lengths}:
            yield from self._entries.get(start, ())


@dataclass(frozen=True)
class _Index:
    """There may be thousands of rules, and a kernel's first call waits. `others` are patterns that
    start with a wildcard, each with a text that must be somewhere in the names."""

    named: dict[str, list[_Entry]] = field(default_factory=dict)
    by_name: _Starts = field(default_factory=_Starts)
    by_module: _Starts = field(default_factory=_Starts)
    others: list[tuple[str, _Entry]] = field(default_factory=list)


@dataclass(frozen=True)
class Policy:
    """`path` is where it was read, `text` what stands there."""

    path: Path
    rules: tuple[Rule, ...]
    text: str = field(default="", repr=False)

    def rulings(self, kernel: str, modules: Sequence[str]) -> Mapping[str, Ruling]:
        """By name of the setting. A stored kernel may go by several names of its module."""
        found: dict[str, Ruling] = {}
        for pattern, rule in self.matching(kernel, modules):
            for name, value in rule.values.items():
                found[name] = Ruling(value, rule, pattern)
        return found

    def matching(self, kernel: str, modules: Sequence[str]) -> list[_Entry]:
        """The most specific last; of equals, the one that stands later."""
        index = self._index
        likely = list(index.named.get(kernel, ()))
        likely += index.by_name.starting([kernel])
        likely += index.by_module.starting(modules)
        whole = "\n".join((kernel, *modules))
        likely += [entry for literal, entry in index.others if literal in whole]
        found = [entry for entry in likely if entry[0].matches(kernel, modules)]
        return sorted(found, key=lambda entry: (entry[0].specificity, entry[1].number))

    @cached_property
    def _index(self) -> _Index:
        index = _Index()
        for pattern, rule in self.entries():
            entry = pattern, rule
            if pattern.names_kernel:
                index.named.setdefault(pattern.name, []).append(entry)
            elif start := _WILD.split(pattern.name)[0]:
                index.by_name.add(start, entry)
            elif start := _WILD.split(pattern.module)[0]:
                index.by_module.add(start, entry)
            else:
                index.others.append((pattern.literal, entry))
        return index

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
