"""What a bundle is made of: the entries it may have, how large they may be, and its manifest.

manifest.json             versions, and the size and hash of every other entry
store.jsonl               workloads with their runs and trials; in a large bundle store-3f.jsonl
                          and so on, by how the workloads' ids begin
index-0.jsonl             what the first kernel's workloads are, without their trials
models/KERNEL.json        a kernel's cost model, as it was handed over
binaries/KEY/FILE         compiled kernels
missed.jsonl              keys that were met and not tuned, where they were asked for
jit.jsonl                 specializations of kernels, where they were asked for
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from whet.core.errors import BundleError
from whet.core.frozen import FrozenMap
from whet.store.bundles.shapes import BOOLEAN, COUNT, NAME, TEXT, MapOf, Scalar, check

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
