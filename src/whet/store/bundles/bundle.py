"""`open_bundle`: one file with results, cost models and binaries, used where it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from whet.store.bundles.archive import Archive
from whet.store.bundles.format import (
    JIT,
    METADATA,
    Manifest,
    binary_entry,
    bundle_error,
    model_entry,
    parsed,
)
from whet.store.bundles.store import BundleStore

_BINARIES = "binaries/"


class Bundle:
    """A bundle that is open. Reading it executes nothing, writes nothing, and never yields bytes
    other than those the manifest has the hash of; `BundleError` says what is wrong with it."""

    def __init__(self, path: str | Path) -> None:
        self._archive = Archive(Path(path).expanduser().absolute())
        self.store = BundleStore(self._archive)
        self._checked = False
        self._binaries: dict[str, list[str]] = {}
        for name in self.manifest.entries:
            if name.startswith(_BINARIES):
                _, key, file = name.split("/")
                self._binaries.setdefault(key, []).append(file)

    @property
    def path(self) -> Path:
        return self._archive.path

    @property
    def manifest(self) -> Manifest:
        return self._archive.manifest

    def model(self, name: str) -> str | None:
        """A cost model's text, as it was handed over."""
        return self.store.models.get(name)

    def model_names(self) -> list[str]:
        return list(self.store.models)

    def binary_keys(self) -> list[str]:
        return sorted(self._binaries)

    def binary_files(self, key: str) -> dict[str, bytes]:
        """Every file of a compiled kernel, its metadata included; empty for an unknown key."""
        files = sorted(self._binaries.get(key, ()))
        return {file: self._archive.read(binary_entry(key, file)) for file in files}

    def binary(self, key: str) -> tuple[Mapping[str, Any], Mapping[str, bytes]] | None:
        """The compiled kernel's metadata and its other files."""
        files = self.binary_files(key)
        if not files:
            return None
        try:
            metadata = parsed(files.pop(METADATA), f"the metadata of binary {key}")
        except KeyError:
            raise bundle_error(self.path, f"binary {key} has no {METADATA}") from None
        except ValueError as error:
            raise bundle_error(self.path, str(error)) from None
        if not isinstance(metadata, dict):
            raise bundle_error(self.path, f"the metadata of binary {key} is not an object")
        return metadata, files

    def jit_lines(self) -> list[bytes]:
        """What describes specializations of kernels, one a line; not looked into here."""
        if JIT not in self.manifest.entries:
            return []
        return self._archive.read(JIT).splitlines()

    def check(self) -> None:
        """Reads all of it, once: whatever there is to refuse is refused now."""
        if self._checked:
            return
        self.store.check()
        for key in self._binaries:
            self.binary(key)
        self.jit_lines()
        for name in self.store.models:
            self._archive.read(model_entry(name))
        self._checked = True

    def close(self) -> None:
        self.store.close()
        self._archive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_bundle(path: str | Path) -> Bundle:
    """Reads the manifest and the list of entries; everything else when it is asked for."""
    return Bundle(path)


_Identity = tuple[str, int, int, int, int]
_last: tuple[_Identity, Bundle] | None = None


def active_bundle(path: str | Path) -> Bundle:
    """As `open_bundle`, and open for the life of the process: what everybody asks is read once.

    A file that somebody has put in its place is opened instead.
    """
    global _last
    whole = Path(path).expanduser().absolute()
    try:
        status = whole.stat()
    except OSError as error:
        raise bundle_error(whole, f"it cannot be opened ({error.strerror})") from None
    identity = (
        os.fspath(whole), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    )  # fmt: skip
    if _last is None or _last[0] != identity:
        _last = identity, Bundle(whole)
    return _last[1]
