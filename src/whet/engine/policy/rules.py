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
        named, patterned = self._index
        likely: list[_Entry] = list(named.get(kernel, ()))
        whole = "\n".join((kernel, *modules))
        likely += [entry for literal, entry in patterned if literal in whole]
        found = [entry for entry in likely if entry[0].matches(kernel, modules)]
        return sorted(found, key=lambda entry: (entry[0].specificity, entry[1].number))

    @cached_property
    def _index(self) -> tuple[dict[str, list[_Entry]], list[tuple[str, _Entry]]]:
        """By name where it is written out, since there may be thousands."""
        named: dict[str, list[_Entry]] = {}
        patterned: list[tuple[str, _Entry]] = []
        for pattern, rule in self.entries():
            if pattern.names_kernel:
                named.setdefault(pattern.name, []).append((pattern, rule))
            else:
                patterned.append((pattern.literal, (pattern, rule)))
        return named, patterned

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
