"""What a lock file says: for a kernel's source on a GPU, which config each key uses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.core.config import Config
from whet.core.errors import UsageError
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
