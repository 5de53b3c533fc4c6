"""The index of a long policy as a file: where its rules stand, and which may be for a kernel.

There are only numbers in it; what the rules say, and for whom, is read from the policy. A file is
good for the very bytes that it was made from, which its digest stands for.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from zlib import crc32

import numpy as np

_MAGIC = b"whetpol\x01"
# The magic, the digest, how many lengths, starts, texts and rules there are, and a checksum.
_HEADER = struct.Struct("<8s32sIIIII")


class DamagedIndexError(Exception):
    """The policy has to be read as a whole."""


class IndexFile:
    """`lengths` are those of the texts by which patterns are found; `starts` are where the rules
    begin, and where the last one ends."""

    def __init__(self, data: bytes, digest: bytes) -> None:
        """Raises `DamagedIndexError` for what is not the index of this policy."""
        try:
            magic, made_from, *counts, checksum = _HEADER.unpack_from(data)
        except struct.error:
            raise DamagedIndexError from None
        lengths, starts, texts, rules = counts
        body = memoryview(data)[_HEADER.size :]
        if (magic, made_from) != (_MAGIC, digest) or crc32(body) != checksum:
            raise DamagedIndexError
        sizes = (lengths, starts, texts, texts + 1, rules)
        if len(body) != 4 * sum(sizes):
            raise DamagedIndexError
        numbers = np.frombuffer(body, "<u4")
        parts = [
            numbers[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)
        ]
        self.lengths: list[int] = parts[0].tolist()
        self.starts, self._codes, self._ends, self._rules = parts[1:]

    def rules(self, texts: Collection[str]) -> set[int]:
        """The numbers of those that are found by one of these texts, and perhaps of others."""
        codes = np.fromiter(map(_code, texts), "<u4", len(texts))
        places = np.searchsorted(self._codes, codes)
        found: set[int] = set()
        for place in places[self._codes.take(places, mode="clip") == codes].tolist():
            found.update(self._rules[self._ends[place] : self._ends[place + 1]].tolist())
        return found


def index_bytes(rules: Mapping[str, Iterable[int]], starts: Sequence[int], digest: bytes) -> bytes:
    """`rules` has, by text, the numbers of those that may count for a kernel with that text."""
    by_code: dict[int, set[int]] = {}
    for text, several in rules.items():
        by_code.setdefault(_code(text), set()).update(several)
    codes = sorted(by_code)
    lists = [sorted(by_code[code]) for code in codes]
    lengths = sorted({len(text) for text in rules})
    ends = [0, *accumulate(map(len, lists))]
    every = [number for several in lists for number in several]
    body = np.array([*lengths, *starts, *codes, *ends, *every], "<u4").tobytes()
    counts = len(lengths), len(starts), len(codes), len(every)
    return _HEADER.pack(_MAGIC, digest, *counts, crc32(body)) + body


def _code(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))
