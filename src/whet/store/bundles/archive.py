"""The file of a bundle: what it is made of, and reading it as if somebody hostile had written it.

manifest.json             versions, and the size and hash of every other entry
store.jsonl               workloads with their runs and trials; in a large bundle store-3f.jsonl
                          and so on, by how the workloads' ids begin
index-0.jsonl             what the first kernel's workloads are, without their trials
models/KERNEL.json        a kernel's cost model, as it was handed over
binaries/KEY/FILE         compiled kernels
missed.jsonl              keys that were met and not tuned, where they were asked for
jit.jsonl                 specializations of kernels, where they were asked for

Whether JSON from elsewhere has the shape we rely on is seen before anything is made of it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import struct
import weakref
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn
from urllib.parse import quote

from whet.core.errors import BundleError
from whet.core.frozen import FrozenMap

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


_LONGEST_NAME = 1024
_LARGEST = 1e300
# Sizes beyond this are no problem sizes, and would not survive arithmetic on floats.
_LARGEST_INTEGER = 2**128
_DEEPEST = 8


@dataclass(frozen=True)
class Scalar:
    """`words` end the sentence "… is not"."""

    words: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class Maybe:
    """None will do as well."""

    shape: Any


@dataclass(frozen=True)
class MapOf:
    """An object with any names, each with a value of this shape."""

    shape: Any


def check(value: Any, shape: Any, name: str) -> None:
    """Raises ValueError where `value` has another shape.

    A shape is a `Scalar`, a `Maybe`, a `MapOf`, a list of the one shape that all items have, or a
    dict of the names that must be there; others may be.
    """
    if isinstance(shape, Scalar):
        if not shape.fits(value):
            raise ValueError(f"{name} is not {shape.words}")
    elif isinstance(shape, Maybe):
        if value is not None:
            check(value, shape.shape, name)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ValueError(f"{name} is not a list")
        _check_items(value, shape[0], name)
    elif not isinstance(value, dict):
        raise ValueError(f"{name} is not an object")
    elif isinstance(shape, MapOf):
        _check_items(value, TEXT, name)
        _check_items(value.values(), shape.shape, name)
    else:
        for key, inner in shape.items():
            if key not in value:
                raise ValueError(f"{name} has no '{key}'")
            # Told apart here, since it is by far the most frequent and needs no longer name.
            if not isinstance(inner, Scalar):
                check(value[key], inner, f"{name}.{key}")
            elif not inner.fits(value[key]):
                raise ValueError(f"{name}.{key} is not {inner.words}")


def _check_items(values: Iterable[Any], shape: Any, name: str) -> None:
    if not isinstance(shape, Scalar):
        for item in values:
            check(item, shape, f"an item of {name}")
    elif not all(map(shape.fits, values)):
        raise ValueError(f"an item of {name} is not {shape.words}")


def one_of(*choices: str) -> Scalar:
    return Scalar(f"one of {', '.join(choices)}", lambda value: value in choices)


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or value.isascii():
        return isinstance(value, str)
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_NAME and value.isprintable()


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    """NaN is not below anything."""
    return (_is_integer(value) or isinstance(value, float)) and abs(value) < _LARGEST


def _is_sample(value: Any) -> bool:
    return isinstance(value, float) or _is_number(value)


def _is_plain(value: Any, depth: int = 0) -> bool:
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, int):
        return abs(value) < _LARGEST_INTEGER
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return depth < _DEEPEST and all(_is_plain(item, depth + 1) for item in value)
    return _is_text(value)


TEXT = Scalar("text", _is_text)
NAME = Scalar("a printable name", _is_name)
NUMBER = Scalar("a number", _is_number)
SAMPLE = Scalar("a number", _is_sample)
INTEGER = Scalar("a whole number", _is_integer)
COUNT = Scalar("a count", lambda value: _is_integer(value) and value >= 0)
BOOLEAN = Scalar("true or false", lambda value: isinstance(value, bool))
PLAIN = Scalar("a plain value", _is_plain)


FORMAT = "whet-bundle"
VERSION = 1
MANIFEST = "manifest.json"
METADATA = "metadata.json"
MISSED = "missed.jsonl"
JIT = "jit.jsonl"

# A zip file without the extensions for more than four GiB or 65,535 entries, which none needs.
MAX_ENTRIES = 60_000
MAX_FILE_BYTES = (1 << 32) - (1 << 20)
MAX_MANIFEST_BYTES = 32 << 20
MAX_ENTRY_BYTES = 256 << 20
MAX_TOTAL_BYTES = 8 << 30

# Of a workload's id, which is hexadecimal.
MOST_DIGITS = 3

_KEY = re.compile(r"[0-9a-f]{8,128}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@-]{0,127}")
_NAMES = re.compile(
    rf"store(-[0-9a-f]{{1,{MOST_DIGITS}}})?\.jsonl|index-[0-9]{{1,5}}\.jsonl"
    rf"|(missed|jit)\.jsonl|models/[A-Za-z0-9_.~%-]{{1,4000}}\.json|binaries/{_KEY.pattern}/{_FILE.pattern}"
)
_HASH = Scalar(
    "a SHA-256 hash",
    lambda value: isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None,
)
_DEVICE = {"name": NAME, "vendor": NAME, "architecture": NAME, "driver": NAME}
_KERNEL = {"name": NAME, "workloads": COUNT, "trials": COUNT, "runs": COUNT}
_MANIFEST = {
    "created": NAME,
    "whet": NAME,
    "best_only": BOOLEAN,
    "digits": COUNT,
    "entries": MapOf({"sha256": _HASH, "bytes": COUNT}),
    "toolchains": [MapOf(TEXT)],
    "devices": [_DEVICE],
    "kernels": [_KERNEL],
}


@dataclass(frozen=True)
class Entry:
    sha256: str
    bytes: int


@dataclass(frozen=True)
class KernelPart:
    """How much of a kernel is in a bundle."""

    name: str
    workloads: int
    trials: int
    runs: int


@dataclass(frozen=True)
class Manifest:
    """`digits` is by how many digits of their ids the workloads are divided among entries;
    `created` is a date in words that sort."""

    created: str
    whet: str
    best_only: bool
    digits: int
    entries: FrozenMap[Entry]
    toolchains: tuple[FrozenMap[str], ...] = ()
    devices: tuple[FrozenMap[str], ...] = ()
    kernels: tuple[KernelPart, ...] = ()

    @property
    def bytes(self) -> int:
        """Of all entries, unpacked."""
        return sum(entry.bytes for entry in self.entries.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "created": self.created,
            "whet": self.whet,
            "best_only": self.best_only,
            "digits": self.digits,
            "kernels": [asdict(kernel) for kernel in self.kernels],
            "devices": [dict(device) for device in self.devices],
            "toolchains": [dict(versions) for versions in self.toolchains],
            "entries": {name: asdict(entry) for name, entry in sorted(self.entries.items())},
        }

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Raises ValueError for a manifest that no `whet pack` has written."""
        data = parsed(text, "its manifest", unique=True)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError("its manifest is not from a whet bundle")
        version = data.get("version")
        if version != VERSION or isinstance(version, bool):
            shown = str(version)[:20]
            raise ValueError(f"it has version {shown}, but this whet reads version {VERSION}")
        check(data, _MANIFEST, "manifest")
        if data["digits"] > MOST_DIGITS:
            raise ValueError(f"manifest.digits is more than {MOST_DIGITS}")
        _check_entries(data["entries"])
        return cls(
            created=data["created"],
            whet=data["whet"],
            best_only=data["best_only"],
            digits=data["digits"],
            entries=FrozenMap(
                {name: Entry(one["sha256"], one["bytes"]) for name, one in data["entries"].items()}
            ),
            toolchains=tuple(FrozenMap(versions) for versions in data["toolchains"]),
            devices=tuple(FrozenMap({n: d[n] for n in _DEVICE}) for d in data["devices"]),
            kernels=tuple(KernelPart(**{n: k[n] for n in _KERNEL}) for k in data["kernels"]),
        )


def _check_entries(entries: Mapping[str, Any]) -> None:
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"it lists {len(entries)} entries, more than the {MAX_ENTRIES} allowed")
    total = 0
    for name, entry in entries.items():
        if not is_entry_name(name):
            raise ValueError(f"its manifest lists {name[:80]!r}, which is not an allowed name")
        if entry["bytes"] > MAX_ENTRY_BYTES:
            raise ValueError(
                f"entry {name} declares {entry['bytes']} bytes, more than the "
                f"{MAX_ENTRY_BYTES} allowed"
            )
        total += entry["bytes"]
    if total > MAX_TOTAL_BYTES:
        raise ValueError(
            f"its entries declare {total} bytes, more than the {MAX_TOTAL_BYTES} allowed"
        )


def is_entry_name(name: str) -> bool:
    """A list of what is allowed: no path that leads elsewhere can be on it."""
    return _NAMES.fullmatch(name) is not None and len(name) <= 4096


def is_binary_key(key: str) -> bool:
    return _KEY.fullmatch(key) is not None


def is_file_name(name: str) -> bool:
    return _FILE.fullmatch(name) is not None


def store_entry(workload_id: str, digits: int) -> str:
    """`store.jsonl`, or with two digits `store-3f.jsonl`."""
    return f"store-{workload_id[:digits]}.jsonl" if digits else "store.jsonl"


def index_entry(kernel: int) -> str:
    return f"index-{kernel}.jsonl"


def model_entry(kernel: str) -> str:
    return f"models/{quote(kernel, safe='')}.json"


def binary_entry(key: str, file: str) -> str:
    return f"binaries/{key}/{file}"


def parsed(text: str | bytes, what: str, *, unique: bool = False) -> Any:
    """What the JSON says, ValueError where it is none, or where with `unique` a name occurs twice
    in one object."""
    try:
        return json.loads(text, object_pairs_hook=_unique if unique else None)
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{what} is not JSON ({error})") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice")
    return found


def bundle_error(path: Path, what: str) -> BundleError:
    """What comes from the bundle itself may not play tricks on the reader's terminal."""
    return BundleError(f"bundle {path} was rejected: {printable(what)}; download or pack it again")


def printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "�" for letter in text)
