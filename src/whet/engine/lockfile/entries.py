"""A lock file: for a kernel's source on a GPU, which config each key uses. As text it is sorted,
one line a key, made to be reviewed and merged.

    kernel matmul
    device {"architecture": "sm90", "name": "NVIDIA H200", "vendor": "nvidia"}
    source 9f1c2a3b4c5d6e7f
    tools {"triton": "3.6.0"}
    {"K": 4096, "M": 512} -> {"BLOCK": 64, "num_warps": 4} 1f6a90c2

The last word of a line is a digest of the line and of the four above it, so that a line that was
changed, or that a merge moved under another kernel, is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from whet.core.config import Config, frozen_values
from whet.core.errors import SpaceError, UsageError, did_you_mean
from whet.core.files import write_whole
from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property
from whet.core.workload import Workload


class LockError(UsageError):
    """A lock file that cannot be read, or does not fit itself. Nothing was chosen from it."""


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def short_hash(text: str, bytes_: int = 8) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=bytes_).hexdigest()


@dataclass(frozen=True)
class LockedDevice:
    """What of a device decides whether a config fits it. The driver is none of it."""

    name: str
    vendor: str
    architecture: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class LockEntry:
    """`toolchain` is what the choice was made with, and no part of what it is for. `line` is how a
    file has written key and config, empty where it comes from none."""

    kernel: str
    fingerprint: str
    device: LockedDevice
    key: FrozenMap[Any]
    config: Config
    toolchain: FrozenMap[str] = field(default_factory=FrozenMap)
    line: str = field(default="", compare=False, repr=False)

    @classmethod
    def of(cls, workload: Workload, config: Config) -> LockEntry:
        # A benchmark of the user's own is no tool that the kernel was built with.
        tools = {name: one for name, one in workload.toolchain.items() if name != "timer"}
        return cls(
            workload.kernel,
            workload.fingerprint,
            device_of(workload),
            workload.key,
            config,
            FrozenMap(tools),
        )

    @cached_property
    def id(self) -> str:
        return _identity(self.kernel, self.fingerprint, self.device, self.key)

    def says_as(self, other: LockEntry) -> bool:
        """Whether two entries of one id make the same choice with the same tools."""
        if self.toolchain != other.toolchain:
            return False
        return bool(self.line and self.line == other.line) or self.config == other.config

    @cached_property
    def order(self) -> tuple[Any, ...]:
        """By kernel, device and source; then keys with numbers as numbers, so that 512 precedes
        1024."""
        values = tuple((name, _ordinal(self.key[name])) for name in sorted(self.key))
        tools = tuple(sorted(self.toolchain.items()))
        return (self.kernel, self.device.name, self.fingerprint, tools, values, self.id)

    def __str__(self) -> str:
        key = ", ".join(f"{name}={value}" for name, value in self.key.items())
        return f"{self.kernel}({key}) on {self.device}"


def device_of(workload: Workload) -> LockedDevice:
    device = workload.device
    return LockedDevice(device.name, device.vendor, device.architecture)


def entry_id(workload: Workload) -> str:
    """The id of the entry for this workload, with whatever tools it is built."""
    return _identity(workload.kernel, workload.fingerprint, device_of(workload), workload.key)


def _identity(kernel: str, fingerprint: str, device: LockedDevice, key: Mapping[str, Any]) -> str:
    # Quicker than JSON, and files of thousands of entries are read where somebody waits.
    place = (device.name, device.vendor, device.architecture)
    return short_hash(repr((kernel, fingerprint, place, sorted(key.items()))))


@dataclass(frozen=True)
class LockFile:
    """`path` is where it was read; `by_id` has its entries, and `lines` the same by how they are
    written: what stands above a line, and the line."""

    path: Path
    by_id: Mapping[str, LockEntry]
    lines: Mapping[tuple[tuple[str, ...], str], LockEntry] = field(
        default_factory=dict, compare=False, repr=False
    )

    @classmethod
    def of(cls, path: Path, entries: Iterable[LockEntry]) -> LockFile:
        return cls(path, {one.id: one for one in entries})

    @property
    def entries(self) -> list[LockEntry]:
        return sorted(self.by_id.values(), key=sort_key)

    @cached_property
    def digest(self) -> str:
        """Of all choices in it, whatever tools they were made with."""
        return choices_digest({id: one.config for id, one in self.by_id.items()})

    @cached_property
    def by_kernel(self) -> Mapping[str, list[LockEntry]]:
        found: dict[str, list[LockEntry]] = {}
        for one in self.entries:
            found.setdefault(one.kernel, []).append(one)
        return found


def choices_digest(choices: Mapping[str, Config]) -> str:
    return short_hash(_canonical(sorted((id, one.json) for id, one in choices.items())))


def sort_key(entry: LockEntry) -> tuple[Any, ...]:
    return entry.order


def _ordinal(value: Any) -> tuple[int, float, str]:
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53
    return (0, float(value), "") if number else (1, 0.0, str(value))


FIRST_LINE = "whet-lock 1"
_ABOUT = (
    "# Which config each kernel uses. Written by 'whet lock update'; review and commit it.\n"
    "# Merge with 'whet lock merge'; a line changed by hand needs 'whet lock check --accept'.\n"
)
MOST_BYTES = 256 * 2**20

_HEADS = ("kernel", "device", "source", "tools")
_MARKERS = ("<<<<<<< ", "=======", ">>>>>>> ", "||||||| ")
_ARROW = " -> "
_PLAIN = re.compile(r"[^\s\"\\\x00-\x1f][^\"\\\x00-\x1f]*")
_decoder = json.JSONDecoder()
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode


@dataclass(frozen=True)
class Conflict:
    """Two files, with the names they go by, say different things about one id. None: the file
    does not have it any more."""

    ours: LockEntry | None
    theirs: LockEntry | None

    @property
    def about(self) -> LockEntry:
        found = self.ours or self.theirs
        assert found is not None
        return found


def read_lock(path: str | Path, *, accept: bool = False, like: LockFile | None = None) -> LockFile:
    """Raises `LockError` with the line; `accept` takes lines whose digest does not fit them. Lines
    that another file has too are not read again: two that are merged have most in common."""
    where = Path(path).expanduser()
    try:
        with where.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise LockError(
            f"lock file {where} does not exist; write it with: whet lock update {where}"
        ) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LockError(f"cannot read lock file {where}: {why}") from None
    if len(content) > MOST_BYTES:
        raise LockError(f"lock file {where} is larger than {MOST_BYTES >> 20} MiB")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise LockError(f"{where} is not UTF-8, so it is not a lock file") from None
    reader = _LockReader(where, accept, {} if like is None else like.lines)
    return LockFile(where, reader.read(text), reader.read_lines)


class _LockReader:
    """The lines so far: what stands above the next entry."""

    def __init__(
        self,
        path: Path,
        accept: bool,
        known: Mapping[tuple[tuple[str, ...], str], LockEntry],
    ) -> None:
        self._path = path
        self._accept = accept
        self._known = known
        self.read_lines: dict[tuple[tuple[str, ...], str], LockEntry] = {}
        self._heads: dict[str, str] = {}
        self._found: dict[str, LockEntry] = {}
        self._lines: dict[str, int] = {}

    def read(self, text: str) -> dict[str, LockEntry]:
        lines = text.split("\n")
        if lines[0].rstrip() != FIRST_LINE:
            said = "has another version" if lines[0].startswith("whet-lock ") else "is no lock file"
            raise LockError(f"{self._path} {said}; its first line must be '{FIRST_LINE}'")
        for number, line in enumerate(lines[1:], 2):
            content = line.rstrip()
            if content.startswith("{"):
                self._entry(number, content)
            elif content and not content.startswith("#"):
                self._head(number, content)
        return self._found

    def _head(self, number: int, line: str) -> None:
        if line.startswith(_MARKERS):
            raise self._wrong(number, "unresolved merge conflict; keep one side, drop the markers")
        name, _, value = line.partition(" ")
        if name not in _HEADS or not value:
            raise self._wrong(number, f"'{name[:40]}' is not known{did_you_mean(name, _HEADS)}")
        if name == "kernel":
            self._heads = {}
        self._heads[name] = value

    def _entry(self, number: int, line: str) -> None:
        missing = [name for name in _HEADS if name not in self._heads]
        if missing:
            raise self._wrong(number, f"no '{missing[0]}' line stands above it")
        heads = tuple(self._heads[name] for name in _HEADS)
        entry = self._known.get((heads, line)) or self._parsed(number, heads, line)
        self.read_lines[heads, line] = entry
        self._keep(number, entry)

    def _parsed(self, number: int, heads: tuple[str, ...], line: str) -> LockEntry:
        body, _, digest = line.rpartition(" ")
        try:
            key, at = _decoder.raw_decode(body)
            if not body.startswith(_ARROW, at):
                raise ValueError("there is no ' -> ' between key and config")
            config, end = _decoder.raw_decode(body, at + len(_ARROW))
            if end != len(body) or not isinstance(config, dict):
                raise ValueError("something stands behind the config")
            kernel, device, source, tools = _heads(heads)
            written = "" if self._accept else body
            values = frozen_values(key), Config(config)
            entry = LockEntry(kernel, source, device, *values, tools, written)
        except (ValueError, RecursionError, SpaceError) as error:
            raise self._wrong(number, f"cannot be read: {error}") from None
        if not self._accept and digest != line_digest(heads, body):
            raise self._wrong(
                number,
                f"the digest of {entry} does not fit its line, which was changed or moved; restore "
                "it, or accept the change with 'whet lock check --accept'",
            )
        return entry

    def _keep(self, number: int, entry: LockEntry) -> None:
        other = self._found.get(entry.id)
        if other is not None and not other.says_as(entry):
            line = self._lines[entry.id]
            raise self._wrong(number, f"disagrees with line {line} about {entry}; keep one of them")
        self._found[entry.id] = entry
        self._lines[entry.id] = number

    def _wrong(self, line: int, why: str) -> LockError:
        return LockError(f"{self._path}:{line}: {why}")


@lru_cache(maxsize=256)
def _heads(heads: tuple[str, ...]) -> tuple[str, LockedDevice, str, FrozenMap[str]]:
    kernel, place, source, tools = heads
    device, versions = json.loads(place), json.loads(tools)
    if not isinstance(device, dict) or set(device) != {"architecture", "name", "vendor"}:
        raise ValueError("the device needs a name, a vendor and an architecture")
    if not isinstance(versions, dict):
        raise ValueError("the tools are not an object")
    if not all(isinstance(one, str) for one in (*device.values(), *versions.values())):
        raise ValueError("a device or a tool is not text")
    name = json.loads(kernel) if kernel.startswith('"') else kernel
    return str(name), LockedDevice(**device), source, FrozenMap(versions)


def line_digest(heads: Sequence[str], body: str) -> str:
    return short_hash("\n".join((*heads, body)), 4)


def lock_text(entries: Iterable[LockEntry], conflicts: Sequence[Conflict] = (), *names: str) -> str:
    """`names` are those of the two sides of conflicts, which come last, between markers."""
    parts = [FIRST_LINE + "\n", _ABOUT]
    _put(parts, sorted(entries, key=sort_key))
    for one in conflicts:
        parts.append(f"\n<<<<<<< {names[0]}")
        _put(parts, [] if one.ours is None else [one.ours])
        parts.append("\n=======")
        _put(parts, [] if one.theirs is None else [one.theirs])
        parts.append(f"\n>>>>>>> {names[1]}\n")
    return "".join(parts)


def _put(parts: list[str], entries: Sequence[LockEntry]) -> None:
    above: tuple[str, ...] = ()
    for one in entries:
        heads = _head_texts(one.kernel, one.device, one.fingerprint, one.toolchain)
        if heads != above:
            above = heads
            parts.append("\n")
            parts += [f"{name} {text}\n" for name, text in zip(_HEADS, heads, strict=True)]
        body = one.line or f"{_encode(dict(one.key))}{_ARROW}{_encode(dict(one.config))}"
        parts.append(f"{body} {line_digest(heads, body)}\n")


@lru_cache(maxsize=256)
def _head_texts(
    kernel: str, device: LockedDevice, source: str, toolchain: FrozenMap[str]
) -> tuple[str, ...]:
    name = kernel if _PLAIN.fullmatch(kernel) else json.dumps(kernel)
    return name, _encode(asdict(device)), source, _encode(dict(toolchain))


def write_lock(
    path: Path, entries: Iterable[LockEntry], conflicts: Sequence[Conflict] = (), *names: str
) -> None:
    """As a whole or not at all, so that no process reads half a file."""
    target = Path(os.path.realpath(path.expanduser()))
    try:
        write_whole(target, lock_text(entries, conflicts, *names).encode())
    except OSError as error:
        raise LockError(f"cannot write lock file {path}: {error.strerror or error}") from None
