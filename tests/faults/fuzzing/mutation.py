"""Inputs from valid ones: bytes, text, JSON trees, JSON lines and words, each broken in its own
way. All of it is drawn from one seeded generator, so that a seed says everything."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from fuzzing.target import Shape

LONGEST = 1 << 16

_NUMBERS = (
    0, -1, 1, 2, 255, 256, 1e308, -1e308, 5e-324, 0.1, -0.0, 2**31, 2**32, 2**53 + 1, 2**63 - 1,
    2**63, -(2**63) - 1, 2**64, 10**25, 10**400, 2**1100, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
_TEXTS = (
    "", " ", "\0", "\ud800", "\udcff", "\x1b[31m", "\u202e", "é", "𝔸", "a" * 300,
    "../../etc/passwd", "%s%n", "{0}", "{a.__class__}", "__class__", "1e999", "0x10", "1_0",
    "١", "none", "NaN", "null", "\n", "x\ny", "-", "--", "=", ",", "true", "9" * 5000,
)  # fmt: skip
_DEEP = "@deep@"
_NESTED = json.dumps(_DEEP)

_BYTES = [
    b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80", b"{}", b"[]", b'"', b"\\",
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1", b"1e-400", b"\xed\xa0\x80", b"\xc0\x80",
    b"\xef\xbb\xbf", b"\r\n", b"\t", b"'", b"(", b")", b"9" * 40, b"\\ud800", b",", b":", b"null",
]  # fmt: skip
_DIGITS = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def mutator(shape: Shape, words: Sequence[str]) -> Callable[[bytes, bytes, random.Random], bytes]:
    """A function of one input, another to take parts from, and the generator."""
    known = [word.encode(errors="surrogatepass") for word in words]

    def havoc(data: bytes, other: bytes, rng: random.Random) -> bytes:
        return _havoc(data, other, rng, known)

    def trees(data: bytes, other: bytes, rng: random.Random) -> bytes:
        if rng.random() < 0.15:
            return havoc(data, other, rng)
        return _tree(data, rng, words) or havoc(data, other, rng)

    def lines(data: bytes, other: bytes, rng: random.Random) -> bytes:
        rows = data.split(b"\n")
        at = rng.randrange(len(rows))
        choice = rng.random()
        if choice < 0.7:
            rows[at] = trees(rows[at], other, rng)
        elif choice < 0.8:
            del rows[at]
        elif choice < 0.9:
            rows.insert(at, rng.choice(rows))
        else:
            return havoc(data, other, rng)
        return b"\n".join(rows)

    def tokens(data: bytes, other: bytes, rng: random.Random) -> bytes:
        return _tokens(data, other, rng, known)

    plain: dict[Shape, Callable[[bytes, bytes, random.Random], bytes]] = {
        "bytes": havoc,
        "text": havoc,
        "json": trees,
        "lines": lines,
        "words": tokens,
    }
    return plain[shape]


def _havoc(data: bytes, other: bytes, rng: random.Random, words: Sequence[bytes]) -> bytes:
    body = bytearray(data)
    for _ in range(1 << rng.randrange(4)):
        at = rng.randrange(len(body) + 1)
        length = min(1 << rng.randrange(7), len(body) - at)
        kind = rng.randrange(9)
        if kind == 0 and body:
            body[at % len(body)] ^= 1 << rng.randrange(8)
        elif kind == 1 and body:
            body[at % len(body)] = rng.randrange(256)
        elif kind == 2:
            del body[at : at + length]
        elif kind == 3:
            body[at:at] = body[at : at + length]
        elif kind == 4:
            body[at:at] = rng.choice(words) if words and rng.random() < 0.7 else rng.choice(_BYTES)
        elif kind == 5:
            body[at : at + length] = rng.choice(words or _BYTES)
        elif kind == 6 and other:
            start = rng.randrange(len(other))
            body[at : at + length] = other[start : start + length + rng.randrange(32)]
        elif kind == 7:
            del body[at:]
        else:
            _renumber(body, rng)
    return bytes(body[:LONGEST])


def _renumber(body: bytearray, rng: random.Random) -> None:
    """Another number where one stands."""
    numbers = list(_DIGITS.finditer(bytes(body[:4096])))
    if numbers:
        found = rng.choice(numbers)
        body[found.start() : found.end()] = str(rng.choice(_NUMBERS))[:80].encode()


@lru_cache(maxsize=64)
def _parsed(data: bytes) -> str | None:
    """Whether it is JSON, as text that is parsed again for a copy of its own."""
    try:
        text = data.decode()  # bytes would be taken for UTF-16 as well
        json.loads(text)
        return text
    except (ValueError, RecursionError):
        return None


def _tree(data: bytes, rng: random.Random, words: Sequence[str]) -> bytes | None:
    text = _parsed(data)
    if text is None:
        return None
    holder = [json.loads(text)]
    try:
        for _ in range(1 << rng.randrange(3)):
            _edit(holder, rng, words)
        dumped = json.dumps(holder[0])
    except (ValueError, OverflowError, RecursionError):  # too long or too deep to be written
        return None
    if _NESTED in dumped:
        depth = rng.choice((9, 100, 5000))
        dumped = dumped.replace(_NESTED, "[" * depth + "]" * depth)
    if rng.random() < 0.03:
        dumped = dumped.replace(": ", ": 1, ", 1)
    return dumped.encode()[: 4 * LONGEST]


def _edit(holder: list[Any], rng: random.Random, words: Sequence[str]) -> None:
    parent, place = _somewhere(holder, rng)
    kind = rng.randrange(8)
    value = parent[place]
    if kind == 0 and parent is not holder:
        del parent[place]
    elif kind == 1 and isinstance(value, list) and value:
        value.insert(rng.randrange(len(value) + 1), json.loads(json.dumps(rng.choice(value))))
    elif kind == 1 and isinstance(value, dict):
        value[rng.choice([*words, *_TEXTS])] = _hostile(rng, words)
    elif kind == 2 and isinstance(parent, dict):
        parent[rng.choice([*words, *_TEXTS])] = parent.pop(place)
    elif kind == 3:
        other, there = _somewhere(holder, rng)
        parent[place] = json.loads(json.dumps(other[there]))
    elif kind == 4:
        parent[place] = [value] if rng.random() < 0.5 else {rng.choice(words or _TEXTS): value}
    elif kind == 5 and isinstance(value, int | float) and not isinstance(value, bool):
        parent[place] = rng.choice((-value, value + 1, value / 2, float(value), f"{value}"))
    else:
        parent[place] = _hostile(rng, words)


def _somewhere(holder: list[Any], rng: random.Random) -> tuple[Any, Any]:
    """Any node by its parent and its place there, the deep ones as likely as the others."""
    nodes: list[tuple[Any, Any]] = [(holder, 0)]
    for parent, place in nodes:
        value = parent[place]
        if len(nodes) > 400:
            break
        if isinstance(value, dict):
            nodes += [(value, name) for name in value]
        elif isinstance(value, list):
            nodes += [(value, at) for at in range(min(len(value), 60))]
    return rng.choice(nodes)


def _hostile(rng: random.Random, words: Sequence[str]) -> Any:
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice(_NUMBERS)
    if kind < 5:
        return rng.choice(words) if words and rng.random() < 0.5 else rng.choice(_TEXTS)
    return rng.choice((None, True, False, [], {}, [[]], [None], {"": None}, _DEEP, [1, "1"]))


def _tokens(data: bytes, other: bytes, rng: random.Random, words: Sequence[bytes]) -> bytes:
    """Words between NUL bytes, as a command line has them."""
    parts = data.split(b"\0")
    for _ in range(1 << rng.randrange(3)):
        at = rng.randrange(len(parts)) if parts else 0
        kind = rng.randrange(6)
        if kind == 0 and len(parts) > 1:
            del parts[at]
        elif kind == 1:
            parts.insert(rng.randrange(len(parts) + 1), rng.choice(words))
        elif kind == 2 and parts:
            parts[at] = rng.choice(words)
        elif kind == 3 and parts:
            parts[at] = _havoc(parts[at], other, rng, words).replace(b"\0", b"")
        elif kind == 4 and parts:
            parts[at] = rng.choice(_TEXTS).encode(errors="replace")
        else:
            parts = parts[: at + 1] + other.split(b"\0")[at:]
    return b"\0".join(parts)[:4096]
