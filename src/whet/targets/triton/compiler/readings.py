"""What was read of kernels' sources, kept in the user's cache folder.

To parse a kernel and to write its tree down takes milliseconds, and of a process that finds its
kernels tuned this would be most of what it waits for. It follows from the source's text alone, so
the first process to read a source leaves the reading to later ones. Whatever is wrong with the
folder or a file in it, the source is read anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from whet._version import __version__
from whet.core.files import UntrustedFileError, cache_folder, read_own

FOLDER = "sources"
_MOST_BYTES = 16 * 2**20
_MOST_FILES = 1024


class ReadSource(NamedTuple):
    """The syntax tree as text, the names that the function takes from outside, and of these what
    it puts things into, as `KNOWN[key] = value` does: how full that is depends on what has been
    called so far, and is no part of the source."""

    text: str
    names: frozenset[str]
    filled: frozenset[str]


def remembered(source: str, reader: str, read: Callable[[str], ReadSource]) -> ReadSource:
    """What `read` makes of the source, from an earlier process where there is one. `reader` is the
    file that `read` is in: what another version of it has left is not taken."""
    name = _name(source, reader)
    path = os.path.join(cache_folder(FOLDER), name)
    with suppress(OSError, UntrustedFileError, ValueError, TypeError, zlib.error):
        return _decoded(read_own(path, _MOST_BYTES), name)
    found = read(source)
    _leave(path, _encoded(found, name))
    return found


def _name(source: str, reader: str) -> str:
    about = f"{_versions(reader)}\0{source}"
    return hashlib.blake2b(about.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


@cache
def _versions(reader: str) -> str:
    """Python has trees of its own in every version; who edits the reader keeps whet's version."""
    try:
        about = os.stat(reader)
        edited = f"{about.st_size} {about.st_mtime_ns}"
    except OSError:  # in an archive, which is not edited
        edited = ""
    return f"{__version__} {sys.version} {edited}"


def _encoded(found: ReadSource, name: str) -> bytes:
    text = json.dumps([found.text, sorted(found.names), sorted(found.filled)])
    return f"{name}\n".encode() + zlib.compress(text.encode(), 1)


def _decoded(data: bytes, name: str) -> ReadSource:
    """Raises `ValueError` for what is not the reading of that name; zlib has a checksum."""
    first = f"{name}\n".encode()
    if not data.startswith(first):
        raise ValueError(name)
    text, names, filled = json.loads(zlib.decompress(data[len(first) :]))
    return ReadSource(text, frozenset(names), frozenset(filled))


def _leave(path: str, data: bytes) -> None:
    """Without it all works as well, only slower."""
    from whet.core.files import write_whole

    folder = Path(path).parent
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(Path(path), data)
        if len(os.listdir(folder)) > _MOST_FILES:
            files = sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime_ns)
            for old in files[: -_MOST_FILES // 2]:  # not one by one
                old.unlink(missing_ok=True)
