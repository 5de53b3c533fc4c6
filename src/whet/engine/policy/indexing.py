"""Reads a policy as a whole, and leaves an index of it.

An index has two names: one by the policy's bytes, which is right wherever they come from, and one
by what the file system says of the file, for which nobody has to read them.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any
from zlib import crc32

from whet import _version
from whet.core.files import write_whole
from whet.engine.policy.reading import checked_rules, policy_bytes, policy_text, rules_in_parts
from whet.engine.policy.rules import Policy
from whet.engine.policy.stored import (
    MAGIC,
    SUFFIX,
    DamagedIndexError,
    IndexFile,
    StoredPolicy,
    index_folder,
    name_by_stat,
    read_index,
    text_code,
)
from whet.engine.policy.values import RULE_SETTINGS, rule_values

# Two writes within one tick of a file system's clock look the same, so a file that has just been
# written is known by its bytes alone. There are file systems that count in steps of two seconds.
_SETTLED_NS = 3 * 10**9

_MOST_FILES = 32


def indexed_policy(path: Path, quick: str | None) -> Policy:
    """`quick` is what its index is called by the file system's word, before the file is read."""
    content = policy_bytes(path)
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n")
    name = _name_by_content(content)
    try:
        data = read_index(name)
        policy: Policy = StoredPolicy(path, IndexFile(data, name))
    except (OSError, DamagedIndexError):
        policy, made = _read(path, policy_text(path, content), name)
        if made is None:
            return policy
        data = made
        _write(name, data)
    if quick is not None and _has_settled(path, quick):
        _write(quick, f"{quick}\n".encode() + data[len(name) + 1 :])
    return policy


def _read(path: Path, text: str, name: str) -> tuple[Policy, bytes | None]:
    """All of it, and its index where it can have one."""
    found = rules_in_parts(text)
    if found is None:
        return Policy(path, checked_rules(path, text), text), None
    rules, given = found
    policy = Policy(path, rules, text)
    settings, numbers = _distinct(given)
    patterns = [[str(pattern) for pattern in rule.patterns] for rule in rules]
    by_text = {
        text: {rule.number for one in several for rule in one.latest.values()}
        for text, several in policy.index.by_text.items()
    }
    try:
        said = [_said(one) for one in settings]
        return policy, _index_bytes(name, by_text, list(zip(numbers, patterns, strict=True)), said)
    except (TypeError, ValueError, OverflowError):  # a date, say, or half of a character
        return policy, None


def _distinct(given: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[int]]:
    """Of objects that stand in several places: each once, and which of them stands where."""
    places: dict[int, int] = {}
    numbers = [places.setdefault(id(one), len(places)) for one in given]
    return list({id(one): one for one in given}.values()), numbers


def _said(given: Mapping[str, Any]) -> str:
    """Most values are the same in JSON; others have to be understood again from what is given."""
    values: dict[str, Any] = {}
    again: dict[str, Any] = {}
    for key, value in given.items():
        understood = rule_values({key: value})
        if all(_is_plain(one) for one in understood.values()):
            values.update(understood)
        else:
            values[key], again[key] = None, value  # so that it keeps its place
    return json.dumps([values, again])


def _is_plain(value: Any) -> bool:
    several = value if type(value) is tuple else (value,)
    return all(one is None or type(one) in (bool, int, float, str) for one in several)


def _index_bytes(
    name: str,
    found: Mapping[str, Iterable[int]],
    rules: Sequence[tuple[int, Sequence[str]]],
    settings: Sequence[str],
) -> bytes:
    """`found` has, by text, the numbers of the rules that may count for a kernel with that text;
    the others are what an `IndexFile` gives back."""
    pairs = sorted({(text_code(text), rule) for text, several in found.items() for rule in several})
    lengths = sorted({len(text) for text in found})
    bits = max(1, len(pairs).bit_length() - 1)
    slots = [0] * (2**bits + 1)
    for code, _ in pairs:
        slots[(code >> (32 - bits)) + 1] += 1
    said = [" ".join((str(number), *patterns)) for number, patterns in rules]
    texts = [text.encode() for text in (*said, *settings)]
    starts = [0, *accumulate(map(len, texts))]
    numbers = [*lengths, *accumulate(slots), *(code for code, _ in pairs), *(n for _, n in pairs)]
    counts = (len(lengths), len(slots), len(pairs), len(starts), len(rules))
    body = array("I", [*counts, *numbers, *starts]).tobytes() + b"".join(texts)
    return f"{name}\n".encode() + array("I", [MAGIC, crc32(body)]).tobytes() + body


def _name_by_content(content: bytes) -> str:
    """What was valid for another version need not be for this one."""
    made = hashlib.sha256(" ".join((_version.__version__, *RULE_SETTINGS)).encode() + b"\0")
    made.update(content)
    return made.hexdigest()


def _has_settled(path: Path, quick: str) -> bool:
    with suppress(OSError):
        about = os.stat(path)
        return name_by_stat(about) == quick and time.time_ns() - about.st_ctime_ns > _SETTLED_NS
    return False


def _write(name: str, data: bytes) -> None:
    """Without an index all works as well, only slower."""
    folder = Path(index_folder())
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(folder / f"{name}{SUFFIX}", data)
        others = sorted(folder.glob(f"*{SUFFIX}"), key=lambda one: one.stat().st_mtime_ns)
        for old in others[:-_MOST_FILES]:
            old.unlink(missing_ok=True)
