"""Rules about kernels, and which of them counts.

`chunk_gla_fwd` is a kernel in any module, `fla.ops.*:chunk_*` names both. The most specific rule
wins, for each setting by itself.

A kernel's first call waits for this module to be imported, so its classes are written out: to make
a frozen dataclass takes longer than to look a kernel up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.core.lazy import cached_property

if TYPE_CHECKING:
    from whet.core.frozen import FrozenMap
    from whet.engine.policy.reading import Lines

TABLE = "kernel"

# Settings that mean for one kernel what they mean for all.
SHARED: tuple[str, ...] = (
    "mode",
    "effort",
    "budget",
    "isolate",
    "l2",
    "l2_bytes",
    "build_limit",
    "run_limit",
    "memory",
    "device_memory",
)

# What the bucket of a key argument is called among a rule's values.
BUCKETS = "buckets."


class _Value:
    """Compared by its fields, which nobody changes."""

    __slots__: tuple[str, ...] = ()

    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._fields() == self._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._fields()}"


class Pattern(_Value):
    """`*` stands for any characters, `?` for one."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Raises `ValueError` for what is no pattern."""
        module, colon, name = text.strip().rpartition(":")
        if not name or (colon and not module) or ":" in module or len(text.split()) != 1:
            raise ValueError
        return cls(module or "*", name)

    @property
    def names_kernel(self) -> bool:
        """Whether the kernel's name is written out."""
        return not _is_wild(self.name)

    @property
    def specificity(self) -> tuple[bool, bool, int]:
        literal = sum(map(len, self.literals))
        return self.names_kernel, not _is_wild(self.module), literal

    @property
    def literals(self) -> tuple[str, ...]:
        """Texts that every kernel of this pattern has in its name or in its module."""
        parts = [part.replace("?", "*").split("*") for part in (self.name, self.module)]
        return tuple(text for several in parts for text in several if text)

    def matches(self, kernel: str, modules: Iterable[str]) -> bool:
        if not _matches(self.name, kernel):
            return False
        return self.module == "*" or any(_matches(self.module, module) for module in modules)

    def __str__(self) -> str:
        return self.name if self.module == "*" else f"{self.module}:{self.name}"


def _is_wild(text: str) -> bool:
    return "*" in text or "?" in text


def _matches(pattern: str, text: str) -> bool:
    if "?" in pattern:
        return _expression(pattern)(text) is not None
    first, *parts = pattern.split("*")
    if not parts:
        return pattern == text
    last = parts.pop()
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in parts:  # the earliest place leaves the most room to those that follow
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> Callable[[str], Any]:
    import fnmatch
    import re

    # `[` has no meaning here. The translation keeps many stars from taking for ever.
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]"))).match


class Rule(_Value):
    """`number` is its place in the file; `values` are checked, by name of the setting."""

    __slots__ = ("number", "patterns", "values")

    def __init__(self, number: int, patterns: tuple[Pattern, ...], values: FrozenMap[Any]) -> None:
        self.number, self.patterns, self.values = number, patterns, values


class Ruling(_Value):
    """What is said about one setting of one kernel, and by which rule. `exact`: the rule names the
    kernel itself, so that what does not fit it is a mistake."""

    __slots__ = ("pattern", "rule", "value")

    def __init__(self, value: Any, rule: Rule, pattern: Pattern) -> None:
        self.value, self.rule, self.pattern = value, rule, pattern

    @property
    def exact(self) -> bool:
        return self.pattern.names_kernel


Entry = tuple[Pattern, Rule]


def best_rulings(entries: Iterable[Entry]) -> Mapping[str, Ruling]:
    """By name of the setting, of rules whose patterns match; in the order of the file. The more
    specific counts, then the later."""
    found: dict[str, Ruling] = {}
    ranks: dict[str, tuple[Any, ...]] = {}
    for pattern, rule in entries:
        rank = *pattern.specificity, rule.number
        for name, value in rule.values.items():
            if name not in found or rank > ranks[name]:
                found[name], ranks[name] = Ruling(value, rule, pattern), rank
    return dict(sorted(found.items(), key=lambda item: item[1].rule.number))


class SamePattern:
    """Rules with one pattern, in order; `latest` are those that count, by setting."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.rules: list[Rule] = []
        self.latest: dict[str, Rule] = {}

    def add(self, rule: Rule) -> None:
        self.rules.append(rule)
        self.latest.update(dict.fromkeys(rule.values, rule))


class TextIndex:
    """There may be thousands of rules, and a kernel's first call waits: each pattern is found by
    that text of its own which the fewest others have."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        same: dict[Pattern, SamePattern] = {}
        for pattern, rule in entries:
            same.setdefault(pattern, SamePattern(pattern)).add(rule)
        texts = {pattern: pattern.literals for pattern in same}
        common: dict[str, int] = {}
        for several in texts.values():
            for text in set(several):
                common[text] = common.get(text, 0) + 1
        self._by_text: dict[str, list[SamePattern]] = {}
        for pattern, one in same.items():
            rarest = min(texts[pattern], key=lambda text: (common[text], -len(text)), default="")
            self._by_text.setdefault(rarest, []).append(one)
        self._lengths = sorted({len(text) for text in self._by_text})

    def matching(self, kernel: str, modules: Sequence[str]) -> Iterator[SamePattern]:
        texts = {
            text[start : start + length]
            for text in (kernel, *modules)
            for length in self._lengths
            for start in range(len(text) - length + 1)
        }
        for text in texts & self._by_text.keys():
            for one in self._by_text[text]:
                if one.pattern.matches(kernel, modules):
                    yield one


class Policy:
    """`path` is where it was read, `text` what stands there."""

    def __init__(self, path: Path, rules: tuple[Rule, ...], text: str = "") -> None:
        self.path, self.rules, self.text = path, rules, text

    def rulings(self, kernel: str, modules: Sequence[str]) -> Mapping[str, Ruling]:
        """By name of the setting. A stored kernel may go by several names of its module."""
        return best_rulings(
            (one.pattern, rule)
            for one in self.index.matching(kernel, modules)
            for rule in {rule.number: rule for rule in one.latest.values()}.values()
        )

    def matching(self, kernel: str, modules: Sequence[str]) -> list[Entry]:
        """The most specific last; of equals, the one that stands later."""
        found = [
            (one.pattern, rule)
            for one in self.index.matching(kernel, modules)
            for rule in one.rules
        ]
        return sorted(found, key=lambda entry: (entry[0].specificity, entry[1].number))

    @cached_property
    def index(self) -> TextIndex:
        return TextIndex(self.entries())

    def entries(self) -> Iterator[Entry]:
        for rule in self.rules:
            for pattern in rule.patterns:
                yield pattern, rule

    def line(self, rule: Rule, setting: str = "match") -> int:
        from whet.engine.policy.reading import line_of  # few ever ask for a line

        return line_of(self._lines, rule.number, setting.partition(".")[0])

    def place(self, rule: Rule, setting: str = "match") -> str:
        return f"{self.path}:{self.line(rule, setting)}"

    @cached_property
    def _lines(self) -> Lines:
        from whet.engine.policy.reading import rule_lines

        return rule_lines(self.text, TABLE)
