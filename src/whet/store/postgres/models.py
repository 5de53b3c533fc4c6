"""Models of a shared store: one row each."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any

from whet.core.errors import StoreError
from whet.store.beside import MOST_BYTES
from whet.store.protocol import Models

Fetch = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]
Change = Callable[[str, tuple[Any, ...]], int]


class TableModels(Models):
    """`fetch` and `change` run the named statement. What cannot be read is not there."""

    def __init__(self, fetch: Fetch, change: Change) -> None:
        self._fetch, self._change = fetch, change

    def __getitem__(self, name: str) -> str:
        try:
            rows = self._fetch("MODEL", (name,))
        except StoreError:
            rows = []
        if not rows:
            raise KeyError(name)
        return str(rows[0][0])

    def __setitem__(self, name: str, text: str) -> None:
        if len(text) > MOST_BYTES:
            raise OSError(errno.EFBIG, "a model of this size is not kept", name)
        try:
            self._change("PUT_MODEL", (name, text))
        except StoreError as error:
            raise OSError(errno.EIO, str(error), name) from error

    def __delitem__(self, name: str) -> None:
        try:
            found = self._change("DELETE_MODEL", (name,))
        except StoreError:
            found = 0
        if not found:
            raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        try:
            rows = self._fetch("MODEL_NAMES", ())
        except StoreError:
            rows = []
        return iter([str(name) for (name,) in rows])

    def __len__(self) -> int:
        return sum(1 for _ in self)
