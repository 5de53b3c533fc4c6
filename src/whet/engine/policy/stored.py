"""A policy by the index that is kept of it in the user's cache folder.

A process that uses three kernels needs three of ten thousand rules, and for three rules it takes
longer to import a parser than to look them up. The first process to see a policy checks all of it
and leaves an index (`indexing.py`); later ones look their kernels up there. Whatever is wrong with
the index or its folder, the policy is then read as a whole.

A kernel's first call waits for this module, so it imports little.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any
from zlib import crc32

from whet import _version
from whet.core.files import UntrustedFileError, cache_folder, read_own
from whet.core.lazy import cached_property
from whet.engine.policy.rules import Pattern, Policy, Rule, Ruling, best_rulings, texts_within

SUFFIX = ".index"

# It is another number where the order of bytes is another.
MAGIC = 0x77686502

_MOST_INDEX_BYTES = 64 * 2**20


class DamagedIndexError(Exception):
    """The policy has to be read as a whole."""


class IndexFile:
    """Its first line is its name: the policy it is good for, and this version of whet. Then come
    seven numbers: the magic, a checksum of what follows it, and how many there are of five kinds.

    `lengths` are those of the texts by which patterns are found. Rules are found by a text's code,
    which begins with the number of its slot; slots are where codes of equal beginnings begin. After
    the numbers come the texts of rules and then of settings.
    """

    def __init__(self, data: bytes, name: str) -> None:
        """Raises `DamagedIndexError` for what is not the index of that name."""
        first = f"{name}\n".encode()
        body = memoryview(data)[len(first) :]
        if not data.startswith(first) or len(body) < 28:
            raise DamagedIndexError
        magic, checksum, *counts = body[:28].cast("I")
        lengths, slots, codes, starts, rules = counts
        sizes = (lengths, slots, codes, codes, starts)
        ends = [7 + size for size in accumulate(sizes)]
        if magic != MAGIC or 4 * ends[-1] > len(body) or crc32(body[8:]) != checksum:
            raise DamagedIndexError
        numbers = body[: 4 * ends[-1]].cast("I")
        parts = [numbers[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        self.lengths: list[int] = parts[0].tolist()
        self._slots, self._codes, self._found, self._starts = parts[1:]
        self._texts, self._settings = body[4 * ends[-1] :], rules
        self._shift = 33 - slots.bit_length()  # there are 2ⁿ + 1 of them

    def rules(self, texts: Collection[str]) -> set[int]:
        """The numbers of those that are found by one of these texts, and perhaps of others."""
        slots, codes, shift = self._slots, self._codes, self._shift
        found: set[int] = set()
        for text in texts:
            code = text_code(text)
            slot = code >> shift
            for place in range(slots[slot], slots[slot + 1]):
                if codes[place] == code:
                    found.add(self._found[place])
        return found

    def rule(self, number: int) -> tuple[int, list[str]]:
        """The number of its settings, which others may share, and its patterns."""
        settings, *patterns = self._text(number).split()
        return int(settings), patterns

    def settings(self, number: int) -> str:
        """As JSON: those that were understood, and those that have to be again."""
        return self._text(self._settings + number)

    def _text(self, number: int) -> str:
        return str(self._texts[self._starts[number] : self._starts[number + 1]], "utf-8")


def text_code(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))


class StoredPolicy(Policy):
    """Reads the rules that are asked for; all of them only where somebody wants to see them."""

    def __init__(self, path: Path, index: IndexFile) -> None:
        self.path, self._places = path, index
        self._values: dict[int, Any] = {}

    @cached_property
    def text(self) -> str:  # type: ignore[override]
        from whet.engine.policy.reading import policy_bytes, policy_text

        return policy_text(self.path, policy_bytes(self.path))

    @cached_property
    def rules(self) -> tuple[Rule, ...]:  # type: ignore[override]
        from whet.engine.policy.reading import checked_rules

        return checked_rules(self.path, self.text)

    def rulings(self, kernel: str, modules: Sequence[str]) -> Mapping[str, Ruling]:
        if "rules" not in self.__dict__:
            try:
                return self._indexed_rulings(kernel, modules)
            except Exception:  # its checksum is right, so the mistake is ours
                forget_all()
                self.rules  # noqa: B018
        return super().rulings(kernel, modules)

    def _indexed_rulings(self, kernel: str, modules: Sequence[str]) -> Mapping[str, Ruling]:
        texts = texts_within(self._places.lengths, kernel, modules)
        entries = []
        for number in sorted(self._places.rules(texts)):
            settings, patterns = self._places.rule(number)
            parsed = tuple(map(Pattern.parse, patterns))
            matching = [one for one in parsed if one.matches(kernel, modules)]
            if matching:
                rule = Rule(number, parsed, self._settings(settings))
                entries += [(pattern, rule) for pattern in matching]
        return best_rulings(entries)

    def _settings(self, number: int) -> Any:
        if number not in self._values:
            import json

            from whet.core.frozen import FrozenMap

            values, again = json.loads(self._places.settings(number))
            values = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in values.items()
            }
            if again:
                from whet.engine.policy.values import rule_values

                values.update(rule_values(again))
            self._values[number] = FrozenMap(values)
        return self._values[number]


def name_by_stat(about: os.stat_result) -> str:
    """Whoever writes to a file, or puts another in its place, changes its `ctime`, which nobody can
    set. What was valid for another version of whet need not be for this one."""
    numbers = (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    return "-".join((_version.__version__, *(f"{number:x}" for number in numbers)))


def index_folder() -> str:
    return cache_folder("policies")


def read_index(name: str) -> bytes:
    """Raises `OSError` and `DamagedIndexError`."""
    try:
        return read_own(os.path.join(index_folder(), f"{name}{SUFFIX}"), _MOST_INDEX_BYTES)
    except UntrustedFileError:
        raise DamagedIndexError from None


def forget_all() -> None:
    """Where an index is wrong that this version has written: the next process writes a new one."""
    with suppress(OSError):
        for file in Path(index_folder()).glob(f"*{SUFFIX}"):
            file.unlink(missing_ok=True)
