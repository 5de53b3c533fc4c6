"""Tables as files: gzip of JSON, the same bytes for the same table."""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.core.errors import UsageError, did_you_mean
from whet.core.files import write_whole
from whet.replay.decoding import TableError, table_from_json
from whet.replay.encoding import FORMAT, table_json
from whet.replay.table import Table

SUFFIX = ".whet.json.gz"
SHIPPED = Path(__file__).parent / "tables"

# Far above any table, far below what would take a machine down.
LARGEST_BYTES = 1 << 30

_GZIP = b"\x1f\x8b"
# No name, no time, best compression, no particular system.
_GZIP_HEADER = _GZIP + b"\x08\x00\x00\x00\x00\x00\x02\xff"


@dataclass(frozen=True)
class FileContent:
    """What a file holds. `whole` is False for a gzip that ends too soon."""

    path: Path
    data: bytes
    whole: bool


def shipped() -> tuple[str, ...]:
    """The names of the tables that come with whet."""
    return tuple(sorted(path.name.removesuffix(SUFFIX) for path in SHIPPED.glob(f"*{SUFFIX}")))


def locate(path_or_name: str | os.PathLike[str]) -> Path:
    """The file of a path, or of the name of a shipped table."""
    path = Path(path_or_name)
    if os.path.isfile(path):  # not Path.is_file, which raises for a name that is too long
        return path
    if os.path.exists(path):
        raise TableError(f"{path} is not a file; name a table file")
    name = str(path_or_name).removesuffix(SUFFIX)
    if name in shipped():
        return SHIPPED / f"{name}{SUFFIX}"
    raise TableError(f"no such table: '{path_or_name}'{did_you_mean(name, shipped())}")


def write_table(table: Table, path: str | os.PathLike[str]) -> None:
    """Puts the file in place as a whole, or leaves what was there."""
    target = Path(path)
    if not target.name.endswith(SUFFIX):
        raise UsageError(f"{target} must end in {SUFFIX}")
    packed = table_bytes(table)
    try:
        write_whole(target, packed)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from None


def table_bytes(table: Table) -> bytes:
    text = json.dumps(table_json(table), separators=(",", ":"), allow_nan=False)
    data = text.encode()
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
    body = deflate.compress(data) + deflate.flush()
    return _GZIP_HEADER + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def unpack(path: Path) -> FileContent:
    """A file's bytes, unzipped where they are zipped; as far as they go where they are damaged."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise TableError(
                f"{path} is larger than {LARGEST_BYTES >> 20} MiB, the limit for tables"
            )
        packed = path.read_bytes()
    except OSError as error:
        raise TableError(f"cannot read {path}: {error.strerror or error}") from None
    if not packed.startswith(_GZIP):
        return FileContent(path, packed, whole=True)
    parts: list[bytes] = []
    size = 0
    while packed.startswith(_GZIP):
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            part = inflate.decompress(packed, LARGEST_BYTES - size + 1)
        except zlib.error:
            return FileContent(path, b"".join(parts) + _salvaged(packed), whole=False)
        parts.append(part)
        size += len(part)
        if size > LARGEST_BYTES:
            raise TableError(
                f"{path} decompresses to more than {LARGEST_BYTES >> 20} MiB, the limit for tables"
            )
        if not inflate.eof:
            return FileContent(path, b"".join(parts), whole=False)
        packed = inflate.unused_data
    return FileContent(path, b"".join(parts), whole=not packed.strip(b"\0"))


def is_ours(file: FileContent) -> bool:
    return f'"{FORMAT}"'.encode() in file.data[:100]


def parse_table(file: FileContent) -> Table:
    """Only whole files: a table is measured once and read often, so that half of one misleads."""
    if not file.whole:
        raise TableError(f"{file.path} is damaged or truncated; copy or record it again")
    try:
        data: Any = json.loads(file.data)
    except (ValueError, RecursionError):
        raise TableError(f"{file.path} is not a table: not valid JSON") from None
    try:
        return table_from_json(data)
    except TableError as error:
        raise TableError(f"{file.path} is not a table: {error}") from None


def _salvaged(packed: bytes) -> bytes:
    """What comes out of a damaged gzip before the damage."""
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
    parts: list[bytes] = []
    size = 0
    for at in range(0, len(packed), 1024):
        try:
            part = inflate.decompress(packed[at : at + 1024])
        except zlib.error:
            break
        parts.append(part)
        size += len(part)
        if size > LARGEST_BYTES:
            break
    return b"".join(parts)
