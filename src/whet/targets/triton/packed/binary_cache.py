"""Packed kernels and where they are kept. Reading one runs nothing of it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from whet.core.errors import WhetError
from whet.store.bundles.bundle import Bundle

MOST_FILES = 16
MOST_BYTES = 128 * 2**20
MOST_METADATA_BYTES = 2**20

_KEY = re.compile(r"[0-9a-f]{32,128}")
_FILE = re.compile(r"[a-z0-9_]{1,32}(\.[a-z0-9_]{1,32}){0,3}")

METADATA = "metadata.json"


class BinaryError(WhetError):
    """A packed kernel that is damaged, or is none."""


@dataclass(frozen=True)
class PackedKernel:
    """A kernel that was compiled elsewhere.

    `metadata` is safe for JSON; `files` are named by compiler stage, such as `cubin`. Whatever is
    out of bounds raises `BinaryError`.
    """

    key: str
    metadata: Mapping[str, Any]
    files: Mapping[str, bytes]

    def __post_init__(self) -> None:
        check_key(self.key)
        check_sizes({name: len(body) for name, body in self.files.items()})
        if len(self.record().encode()) > MOST_METADATA_BYTES:
            raise BinaryError(f"the metadata of packed kernel {self.key} is too large")

    def record(self) -> str:
        """The metadata with the hash of each file, as text; equal for equal kernels."""
        files = {
            name: {"sha256": hashlib.sha256(body).hexdigest(), "bytes": len(body)}
            for name, body in self.files.items()
        }
        whole = {"v": 1, "key": self.key, "metadata": dict(self.metadata), "files": files}
        try:
            return json.dumps(whole, sort_keys=True, indent=1, allow_nan=False)
        except (ValueError, TypeError, RecursionError):
            raise BinaryError(
                f"the metadata of packed kernel {self.key} cannot be written as JSON"
            ) from None


class BinaryCache(Protocol):
    """Packed kernels by key. `get` answers None for what it does not have and raises a
    `WhetError` for what is damaged; whatever it returns has been checked against its hashes."""

    def get(self, key: str) -> PackedKernel | None: ...

    def put(self, packed: PackedKernel) -> None: ...

    def keys(self) -> Iterator[str]: ...


def check_key(key: str) -> None:
    """Raises `BinaryError` for a key that is not 32 to 128 lower-case hexadecimal digits."""
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        raise BinaryError(f"{str(key)[:80]!r} is not the key of a packed kernel")


def check_sizes(sizes: Mapping[str, int]) -> None:
    """Raises `BinaryError` for names that could be paths, and for too many files or bytes."""
    for name, size in sizes.items():
        if not isinstance(name, str) or _FILE.fullmatch(name) is None or name == METADATA:
            raise BinaryError(f"{str(name)[:80]!r} is not a valid file name in a packed kernel")
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise BinaryError(f"the size of file {name} in a packed kernel is not a number")
    if len(sizes) > MOST_FILES or sum(sizes.values()) > MOST_BYTES:
        raise BinaryError(
            f"a packed kernel may have at most {MOST_FILES} files and {MOST_BYTES >> 20} MiB"
        )


class FolderCache:
    """A folder with one folder a key. It is made when the first kernel is put into it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().absolute()  # workers have folders of their own

    def __contains__(self, key: str) -> bool:
        check_key(key)
        return (self.path / key / METADATA).is_file()

    def keys(self) -> Iterator[str]:
        try:
            names = sorted(os.listdir(self.path))
        except OSError:
            return
        yield from (name for name in names if _KEY.fullmatch(name) is not None)

    def get(self, key: str) -> PackedKernel | None:
        check_key(key)
        folder = self.path / key
        try:
            metadata, declared = _parsed(_read(folder / METADATA, MOST_METADATA_BYTES), key)
            return PackedKernel(key, metadata, {n: _file(folder, n, d) for n, d in declared})
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise BinaryError(f"cannot read {folder / METADATA}: {error.strerror}") from None
        except BinaryError as error:
            raise BinaryError(f"packed kernel {folder} is damaged: {error}") from None

    def put(self, packed: PackedKernel) -> None:
        """In place of what is there under the same key; a reader sees one of both, whole, or for a
        moment none."""
        own = f".{secrets.token_hex(8)}"
        new, place, old = self.path / f"{own}.new", self.path / packed.key, self.path / f"{own}.old"
        try:
            new.mkdir(parents=True)
            for name, body in packed.files.items():
                (new / name).write_bytes(body)
            (new / METADATA).write_text(packed.record(), encoding="utf-8")
            with suppress(FileNotFoundError):
                os.rename(place, old)
            os.rename(new, place)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                return  # somebody else was quicker with the same
            raise BinaryError(
                f"cannot write {self.path}: {error.strerror}; choose another directory"
            ) from None
        finally:
            for folder in (new, old):
                shutil.rmtree(folder, ignore_errors=True)


class BundleCache:
    """The packed kernels of a bundle, which is only read."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle

    def keys(self) -> Iterator[str]:
        return iter(self._bundle.binary_keys())

    def get(self, key: str) -> PackedKernel | None:
        check_key(key)
        files = self._bundle.binary_files(key)
        if not files:
            return None
        try:
            metadata, declared = _parsed(files.get(METADATA, b""), key)
            return PackedKernel(
                key, metadata, {n: _checked(n, files.get(n, b""), d) for n, d in declared}
            )
        except BinaryError as error:
            raise BinaryError(f"packed kernel {key} in the bundle is damaged: {error}") from None

    def put(self, packed: PackedKernel) -> None:
        raise BinaryError("bundles are read-only; write a new one with 'whet pack'")


def _read(path: Path, most: int) -> bytes:
    """A plain file of at most so many bytes; links are not followed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            raise BinaryError(f"{path.name} is not a file, or is larger than {most} bytes")
        return file.read(most + 1)


def _parsed(text: bytes, key: str) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    try:
        record = json.loads(text)
        metadata, files = dict(record["metadata"]), dict(record["files"])
        sizes = {name: declared["bytes"] for name, declared in files.items()}
        same = record["v"] == 1 and record["key"] == key
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BinaryError(f"{METADATA} does not describe a packed kernel") from None
    if not same:
        raise BinaryError(f"{METADATA} belongs to another kernel or to a newer version of whet")
    check_sizes(sizes)
    return metadata, list(files.items())


def _file(folder: Path, name: str, declared: Mapping[str, Any]) -> bytes:
    try:
        body = _read(folder / name, declared["bytes"])
    except OSError as error:
        raise BinaryError(f"cannot read {name}: {error.strerror}") from None
    return _checked(name, body, declared)


def _checked(name: str, body: bytes, declared: Mapping[str, Any]) -> bytes:
    if len(body) != declared["bytes"] or hashlib.sha256(body).hexdigest() != declared.get("sha256"):
        raise BinaryError(f"{name} does not match its checksum")
    return body
