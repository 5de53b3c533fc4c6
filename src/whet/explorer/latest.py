"""Which earlier row a row replaces: the one of the same config."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.uint32]

_HEX_DIGITS = 16
_FEWEST_UNSORTED = 20_000


def numbers_of(config_ids: Sequence[str]) -> Ids:
    """Ids are 16 hexadecimal digits; any other text is hashed to as many."""
    try:
        packed = bytes.fromhex("".join(config_ids))
        if len(packed) == 8 * len(config_ids) and set(map(len, config_ids)) <= {_HEX_DIGITS}:
            return np.frombuffer(packed, ">u8").astype(np.uint64)
    except ValueError:
        pass
    return np.array([number_of(id) for id in config_ids], dtype=np.uint64)


def number_of(config_id: str) -> int:
    try:
        packed = bytes.fromhex(config_id)
    except ValueError:
        packed = b""
    if len(packed) != 8 or len(config_id) != _HEX_DIGITS:
        packed = blake2b(config_id.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(packed, "big")


class LatestRows:
    """Finds configs among millions of rows: most of them sorted, the newest in a dict."""

    def __init__(self) -> None:
        self._ids: Ids = np.zeros(0, dtype=np.uint64)
        self._rows: Rows = np.zeros(0, dtype=np.uint32)
        self._newest: dict[int, int] = {}
        self._unsorted: Ids | None = None
        self._count = 0

    @classmethod
    def of(cls, ids: Ids) -> LatestRows:
        """Sorted when the first one is added: whoever only looks need not wait for it."""
        found = cls()
        found._count = len(ids)
        found._unsorted = ids
        return found

    def find(self, number: int) -> int | None:
        """The latest row of a config."""
        if (row := self._newest.get(number)) is not None:
            return row
        if self._unsorted is not None:
            found = np.flatnonzero(self._unsorted == np.uint64(number))
            return int(found[-1]) if len(found) else None
        rows = self._sorted(np.array([number], dtype=np.uint64))
        return int(rows[0]) - 1 if rows[0] else None

    def add(self, ids: Ids) -> Rows:
        """Appends rows; for each, the number of the row it replaces plus one, 0 for none."""
        if self._unsorted is not None:
            known, self._unsorted = self._unsorted, None
            self._sort(known, np.arange(len(known), dtype=np.uint32))
        replaces = self._sorted(ids)
        newest = self._newest
        for at, number in enumerate(ids.tolist()):
            row = newest.get(number)
            if row is not None:
                replaces[at] = row + 1
            newest[number] = self._count + at
        self._count += len(ids)
        if len(newest) > max(_FEWEST_UNSORTED, len(self._ids)):
            self._sort(
                np.concatenate([self._ids, np.fromiter(newest, np.uint64, len(newest))]),
                np.concatenate([self._rows, np.fromiter(newest.values(), np.uint32, len(newest))]),
            )
            self._newest = {}
        return replaces

    def _sorted(self, ids: Ids) -> Rows:
        """Row plus one of each among those that are sorted."""
        found = np.zeros(len(ids), dtype=np.uint32)
        if len(self._ids):
            at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
            same = self._ids[at] == ids
            found[same] = self._rows[at[same]] + 1
        return found

    def _sort(self, ids: Ids, rows: Rows) -> None:
        """Of the rows of one config only the latest is kept."""
        order = np.lexsort((rows, ids))
        ids, rows = ids[order], rows[order]
        last = np.append(ids[1:] != ids[:-1], True) if len(ids) else np.zeros(0, dtype=bool)
        self._ids, self._rows = ids[last], rows[last]
