"""A long policy whose index is kept in the user's cache folder.

A process that uses three kernels needs three of ten thousand rules. The first process to see a
policy checks all of it and leaves an index; later ones look their kernels up there. Whatever is
wrong with the file or its folder, the policy is then read as a whole.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path

from whet import _version
from whet.core.errors import UsageError
from whet.core.files import write_whole
from whet.engine.policy.index_file import DamagedIndexError, IndexFile, index_bytes
from whet.engine.policy.parts import NotInParts, PartReader
from whet.engine.policy.reading import (
    RULE_SETTINGS,
    checked_rules,
    part_reader,
    policy_bytes,
    policy_text,
    rules_in_parts,
)
from whet.engine.policy.rules import Policy, Rule, Ruling, best_rulings, texts_within

# A shorter file is read in a few milliseconds.
FEWEST_BYTES = 16 * 1024

_MOST_INDEX_BYTES = 64 * 2**20
_MOST_FILES = 16
_SUFFIX = ".index"

_DAMAGED = (DamagedIndexError, NotInParts, UsageError, ValueError, LookupError, TypeError)


class StoredPolicy(Policy):
    """Reads the rules that are asked for; all of them only where somebody wants to see them."""

    _content: bytes
    _places: IndexFile
    _file: Path

    def __init__(self, path: Path, content: bytes, index: IndexFile, file: Path) -> None:
        self.__dict__.update(path=path, _content=content, _places=index, _file=file)

    @cached_property
    def text(self) -> str:
        return policy_text(self.path, self._content)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        return checked_rules(self.path, self.text)

    def rulings(self, kernel: str, modules: Sequence[str]) -> Mapping[str, Ruling]:
        if "rules" not in self.__dict__:
            try:
                return self._indexed_rulings(kernel, modules)
            except _DAMAGED:  # the next process writes a new one
                with suppress(OSError):
                    os.unlink(self._file)
                self.rules  # noqa: B018
        return super().rulings(kernel, modules)

    def _indexed_rulings(self, kernel: str, modules: Sequence[str]) -> Mapping[str, Ruling]:
        texts = texts_within(self._places.lengths, kernel, modules)
        entries = []
        for number in sorted(self._places.rules(texts)):
            start, end = self._places.starts[number : number + 2]
            part = self._content[start:end].decode()
            matching = [one for one in self._reader.patterns(part) if one.matches(kernel, modules)]
            if matching:
                rule = Rule(number, *self._reader.read(part))
                entries += [(pattern, rule) for pattern in matching]
        return best_rulings(entries)

    @cached_property
    def _reader(self) -> PartReader:
        return part_reader()


def known_policy(path: Path) -> Policy:
    """The same as `read_policy`, and quicker where a long one has been read before."""
    content = policy_bytes(path)
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n")
    if len(content) < FEWEST_BYTES:
        text = policy_text(path, content)
        return Policy(path, checked_rules(path, text), text)
    digest = _digest(content)
    file = _index_path(digest)
    try:
        return StoredPolicy(path, content, IndexFile(_read(file), digest), file)
    except (OSError, DamagedIndexError):
        return _indexed(path, policy_text(path, content), file, digest)


def _indexed(path: Path, text: str, file: Path, digest: bytes) -> Policy:
    """Reads all of it, and leaves the index for others."""
    found = rules_in_parts(text)
    if found is None:
        return Policy(path, checked_rules(path, text), text)
    starts, rules = found
    policy = Policy(path, rules, text)
    with suppress(OSError):
        _write(file, index_bytes(_by_text(policy), _byte_starts(text, starts), digest))
    return policy


def _by_text(policy: Policy) -> Mapping[str, Iterable[int]]:
    return {
        text: {rule.number for one in several for rule in one.latest.values()}
        for text, several in policy.index.by_text.items()
    }


def _byte_starts(text: str, starts: Sequence[int]) -> Sequence[int]:
    if text.isascii():
        return starts
    sizes = [len(text[start:end].encode()) for start, end in pairwise([0, *starts])]
    return [*accumulate(sizes)]


def _digest(content: bytes) -> bytes:
    """What was valid for another version need not be for this one."""
    made = hashlib.sha256(" ".join((_version.__version__, *RULE_SETTINGS)).encode() + b"\0")
    made.update(content)
    return made.digest()


def _index_path(digest: bytes) -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    folder = given if os.path.isabs(given) else os.path.expanduser("~/.cache")
    return Path(folder, "whet", "policies", f"{digest.hex()}{_SUFFIX}")


def _read(file: Path) -> bytes:
    """A plain file of this user that nobody else may write to. Raises `OSError`."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as opened:
        about = os.fstat(descriptor)
        own = about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not own or not stat.S_ISREG(about.st_mode) or about.st_size > _MOST_INDEX_BYTES:
            raise DamagedIndexError
        return opened.read()


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(file, data)
    others = sorted(file.parent.glob(f"*{_SUFFIX}"), key=lambda one: one.stat().st_mtime_ns)
    for old in others[:-_MOST_FILES]:
        old.unlink(missing_ok=True)
