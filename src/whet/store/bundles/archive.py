"""The zip file under a bundle, read as if somebody hostile had written it."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import weakref
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from whet.store.bundles.format import (
    MANIFEST,
    MAX_ENTRIES,
    MAX_FILE_BYTES,
    MAX_MANIFEST_BYTES,
    Manifest,
    bundle_error,
)

if TYPE_CHECKING:
    from zipfile import ZipInfo

_LOCAL = struct.Struct("<4s5H3I2H")
_END = struct.Struct("<4s4H2IH")
_ZIP64_LOCATOR = b"PK\x06\x07"
_ZIP64_LOCATOR_BYTES = 20
_MAX_DIRECTORY_BYTES = 64 << 20
_STORED, _DEFLATED = 0, 8
_UTF8_NAMES = 0x800

# Beside its own error, what `zipfile` is known to raise over a list of entries that makes no sense.
_ODD_DIRECTORY = (
    ValueError,
    LookupError,
    struct.error,
    OSError,
    NotImplementedError,
    EOFError,
    OverflowError,
)


class Archive:
    """The entries of one bundle, each checked before its bytes are handed out.

    Opening reads the list of entries and the manifest, no more. What is read afterwards is what
    the manifest promised, or `BundleError`. Threads may read at once, and so may a forked child.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _opened(path)
        # For one that is dropped while it is open, as another takes its place.
        weakref.finalize(self, self._file.close)
        try:
            self._infos = self._directory()
            self.manifest = self._manifest()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._file.close()

    def read(self, name: str) -> bytes:
        """The entry's bytes; KeyError where there is none of this name."""
        entry = self.manifest.entries[name]
        data = self._inflated(self._infos[name], entry.bytes)
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            self._refuse(f"entry {name} does not match its hash in the manifest")
        return data

    def _directory(self) -> dict[str, ZipInfo]:
        import zipfile

        self._check_ends()
        try:
            with zipfile.ZipFile(self._file) as archive:
                infos = archive.infolist()
        except (zipfile.BadZipFile, *_ODD_DIRECTORY) as error:
            self._refuse(f"its list of entries is damaged ({error})")
        found: dict[str, ZipInfo] = {}
        for info in infos:
            self._check_info(info)
            if info.filename in found:
                self._refuse(f"entry {info.filename} is listed twice")
            found[info.filename] = info
        if not infos or infos[0].filename != MANIFEST or infos[0].header_offset != 0:
            self._refuse(f"it does not start with {MANIFEST}")
        return found

    def _check_ends(self) -> None:
        """Before anything is read by the length that the file itself states."""
        size = os.fstat(self._file.fileno()).st_size
        if self._at(0, 4) != b"PK\x03\x04":
            self._refuse("it was not written by 'whet pack'")
        if size > MAX_FILE_BYTES:
            self._refuse(f"it has {size} bytes, more than the {MAX_FILE_BYTES} allowed")
        tail = self._at(max(0, size - _END.size - _ZIP64_LOCATOR_BYTES), 64)
        if len(tail) < _END.size or tail[-_END.size :][:4] != b"PK\x05\x06":
            self._refuse("it is truncated, or data was appended to it")
        _, disk, start, here, count, length, _, comment = _END.unpack(tail[-_END.size :])
        if tail.startswith(_ZIP64_LOCATOR) or disk or start or here != count or comment:
            self._refuse("its list of entries was not written by 'whet pack'")
        if count > MAX_ENTRIES + 1 or length > _MAX_DIRECTORY_BYTES:
            self._refuse(f"it has {count} entries, more than the {MAX_ENTRIES} allowed")

    def _check_info(self, info: ZipInfo) -> None:
        shown = repr(info.orig_filename[:80])
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG) or info.filename.endswith("/"):
            self._refuse(f"entry {shown} is not a plain file")
        if info.flag_bits & ~_UTF8_NAMES or info.compress_type not in (_STORED, _DEFLATED):
            self._refuse(f"entry {shown} is encrypted or uses an unknown compression")
        if info.orig_filename != info.filename:
            self._refuse(f"entry {shown} has a name that is not allowed")

    def _manifest(self) -> Manifest:
        info = self._infos.pop(MANIFEST)
        if info.file_size > MAX_MANIFEST_BYTES:
            self._refuse(
                f"its manifest declares {info.file_size} bytes, more than the "
                f"{MAX_MANIFEST_BYTES} allowed"
            )
        data = self._inflated(info, info.file_size)
        if zlib.crc32(data) != info.CRC:
            self._refuse("its manifest is damaged")
        try:
            manifest = Manifest.from_json(data.decode())
        except ValueError as error:
            self._refuse(str(error))
        for name in sorted(self._infos.keys() ^ manifest.entries.keys()):
            listed = name in manifest.entries
            what = (
                "is listed in its manifest but missing"
                if listed
                else "is not listed in its manifest"
            )
            self._refuse(f"entry {name[:80]!r} {what}")
        for name, entry in manifest.entries.items():
            if self._infos[name].file_size != entry.bytes:
                self._refuse(f"entry {name} does not match its size in the manifest")
        return manifest

    def _inflated(self, info: ZipInfo, size: int) -> bytes:
        """Exactly `size` bytes; what would become more is stopped one byte later."""
        name = info.filename
        header = self._at(info.header_offset, _LOCAL.size)
        if len(header) < _LOCAL.size:
            self._refuse(f"entry {name} is truncated")
        mark, *_, name_length, extra_length = _LOCAL.unpack(header)
        start = info.header_offset + _LOCAL.size
        if mark != b"PK\x03\x04" or self._at(start, name_length) != name.encode():
            self._refuse(f"entry {name} is not at the listed offset")
        # Deflate cannot make random bytes much longer; more would be room for something hidden.
        if info.compress_size > size + size // 100 + 64:
            self._refuse(f"entry {name} is larger compressed than uncompressed")
        packed = self._at(start + name_length + extra_length, info.compress_size)
        if len(packed) < info.compress_size:
            self._refuse(f"entry {name} is truncated")
        data = packed if info.compress_type == _STORED else self._unpacked(packed, size, name)
        if len(data) != size:
            self._refuse(f"entry {name} does not match its declared size")
        return data

    def _unpacked(self, packed: bytes, size: int, name: str) -> bytes:
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            data = stream.decompress(packed, size + 1)
        except zlib.error as error:
            self._refuse(f"entry {name} is damaged ({error})")
        if len(data) > size or not stream.eof or stream.unused_data:
            self._refuse(f"entry {name} does not match its declared size")
        return data

    def _at(self, offset: int, count: int) -> bytes:
        """Without the file's position, which threads and forked children share."""
        try:
            return os.pread(self._file.fileno(), count, offset)
        except (OSError, OverflowError) as error:
            self._refuse(f"it cannot be read ({error})")

    def _refuse(self, what: str) -> NoReturn:
        raise bundle_error(self.path, what) from None


def _opened(path: Path) -> BinaryIO:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise bundle_error(path, "it is not a regular file")
        return path.open("rb")
    except OSError as error:
        reason = error.strerror or error
        raise bundle_error(path, f"it cannot be opened ({reason})") from None
