"""Fitted cost models, kept as text beside the store so that using one needs no fitting.

`runs.db` has the folder `runs.db.models`, with one file for each family of workloads.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from whet.core.errors import UsageError
from whet.core.files import write_whole
from whet.learn.costmodel import CostModel
from whet.store import SqliteStore, Store
from whet.store.bundles.store import BundleStore
from whet.store.overlay import OverlayStore

Models = MutableMapping[str, str]

FORMAT, VERSION = "whet-model", 1
MOST_BYTES = 16 << 20
_SUFFIX = ".json"


class ModelError(UsageError):
    """A text that is no model of ours, or a damaged one."""


@dataclass(frozen=True, eq=False)
class KeptModel:
    """`taught` has the workloads it was fitted to, and how many trials each had then."""

    kernel: str
    taught: Mapping[str, int]
    model: CostModel

    def to_text(self) -> str:
        data = {
            "format": FORMAT,
            "v": VERSION,
            "kernel": self.kernel,
            "taught": dict(self.taught),
            "model": self.model.to_json(),
        }
        return json.dumps(data, separators=(",", ":"))


@lru_cache(maxsize=8)
def read_model(text: str) -> KeptModel:
    """A `ModelError` says in one line what is wrong with the text. Nothing in it is executed."""
    try:
        if len(text) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"it is not a {FORMAT}")
        if data.get("v") != VERSION:
            raise ValueError(f"its version is not {VERSION}")
        kernel = data.get("kernel")
        if not isinstance(kernel, str):
            raise ValueError("it does not name its kernel")
        return KeptModel(
            kernel, _counts(data.get("taught")), CostModel.from_json(data.get("model"))
        )
    except (ValueError, RecursionError) as error:
        first = str(error).partition("\n")[0][:200]
        raise ModelError(f"cannot use the cost model: {first}; delete it or tune again") from None


def _counts(taught: Any) -> dict[str, int]:
    if not isinstance(taught, dict) or not all(type(one) is int for one in taught.values()):
        raise ValueError("it does not list its training data")
    return taught


class FolderModels(Models):
    """One file a model. What cannot be read is not there; writing is all or nothing, and an
    `OSError` where it cannot be."""

    def __init__(self, folder: str | Path, *, read_only: bool = False) -> None:
        self._folder = Path(folder)
        self._read_only = read_only

    def __getitem__(self, name: str) -> str:
        path = self._path(name)
        try:
            if path.stat().st_size > MOST_BYTES:
                raise KeyError(name)
            return path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, text: str) -> None:
        path = self._path(name)
        if self._read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())

    def __delitem__(self, name: str) -> None:
        try:
            self._path(name).unlink()
        except OSError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        with suppress(OSError):
            yield from sorted(path.stem for path in self._folder.glob(f"*{_SUFFIX}"))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, name: str) -> Path:
        if not name.isalnum():
            raise KeyError(name)
        return self._folder / f"{name}{_SUFFIX}"


class _Layered(Models):
    """One's own, and where there is none those of a bundle, which are only read."""

    def __init__(self, own: Models, bundle: BundleStore) -> None:
        self._own, self._bundle = own, bundle

    def __getitem__(self, name: str) -> str:
        text = self._own.get(name)
        text = self._bundle.model(name) if text is None else text
        if text is None:
            raise KeyError(name)
        return text

    def __setitem__(self, name: str, text: str) -> None:
        self._own[name] = text

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)


def models_beside(store: Store) -> Models:
    """Those of a store that is a file, and of the bundle under it; none, and nowhere to keep any,
    for other stores."""
    if isinstance(store, SqliteStore):
        return FolderModels(f"{store.location}.models", read_only=store.read_only)
    if isinstance(store, OverlayStore):
        own, under = store.layers
        if isinstance(under, BundleStore):
            return _Layered(models_beside(own), under)
    return {}
