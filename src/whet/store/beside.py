"""What lies beside a store's file: `runs.db` has the folders `locks` and `runs.db.models`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from whet.core.files import write_whole
from whet.store.protocol import Models

MOST_BYTES = 16 << 20
_SUFFIX = ".json"


def lock_folder_of(file: Path) -> Path:
    return file.parent / "locks"


def identity_of(file: Path) -> tuple[int, int] | None:
    """None where there is no file."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def size_of(file: Path) -> int | None:
    try:
        return os.path.getsize(file)
    except OSError:
        return None


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


class LayeredModels(Models):
    """One's own, and where there is none those that lie under them, which are only read."""

    def __init__(self, own: Models, under: Models) -> None:
        self._own, self._under = own, under

    def __getitem__(self, name: str) -> str:
        text = self._own.get(name)
        return self._under[name] if text is None else text

    def __setitem__(self, name: str, text: str) -> None:
        self._own[name] = text

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)
