"""What was recorded, on disk and in a bundle: specializations, the binaries they became, and the
libraries that Triton had the C compiler build.

Libraries are the module for Triton's driver and, up to 3.6, one launcher for each signature. Triton
keeps them in its disk cache under a key of their source and the platform, and loads them by a name
that ends in Python's ABI. They are kept and put back under the very same names, so that they are
used only where Triton itself would take them for its own. They are code of the host: who preloads a
bundle trusts whoever packed it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import sysconfig
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whet.core.errors import BundleError, UsageError, WhetError
from whet.store import jit_folder
from whet.store.bundles.bundle import Bundle
from whet.store.bundles.writing import FolderBinaries
from whet.targets.triton.compiler.compile import LauncherBuild, launcher_class
from whet.targets.triton.jit.specialization import RecordError, Specialization
from whet.targets.triton.packed.binary_cache import BinaryError, FolderCache, PackedKernel
from whet.targets.triton.request import Request

_RECORDS = "records.jsonl"
_BINARIES = "binaries"


class Records:
    """Many processes may add to one. What is added twice is there once: the latest counts."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.binaries = FolderCache(self.folder / _BINARIES)

    @classmethod
    def beside(cls, store: str | None) -> Records:
        """Beside the store that the settings name."""
        folder = jit_folder(store)
        if folder is None:
            raise UsageError(
                "specializations are recorded beside a store in a file; set WHET_STORE to a path"
            )
        return cls(folder)

    def add(self, found: Iterable[Specialization]) -> None:
        lines = "".join(json.dumps(one.to_json()) + "\n" for one in found)
        if not lines:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked() as descriptor:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, ("\n" * torn + lines).encode())

    def all(self) -> list[Specialization]:
        """In the order in which they were first met. A line that a killed process has left
        unfinished is skipped."""
        try:
            lines = (self.folder / _RECORDS).read_bytes().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(f"cannot read {self.folder / _RECORDS}: {error.strerror}") from None
        found: dict[str, Specialization] = {}
        for line in lines:
            try:
                one = Specialization.from_json(json.loads(line))
            except (RecordError, ValueError, RecursionError):
                continue
            found[one.id] = _later(found.get(one.id), one)
        return list(found.values())

    @contextmanager
    def _locked(self) -> Iterator[int]:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.folder / _RECORDS, flags, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def _later(known: Specialization | None, one: Specialization) -> Specialization:
    """The newer one, but met is met: a derived one does not make a recorded one derived."""
    if known is None or not one.met.derived or known.met.derived:
        return one
    return known


KIND = "library"
_FOLDER = re.compile(r"[A-Za-z0-9_-]{16,128}")
_NAME = re.compile(r"[A-Za-z0-9_]{1,64}\.[A-Za-z0-9_.-]{1,80}\.so|[A-Za-z0-9_]{1,64}\.so")

_lock = threading.Lock()


def watch_libraries(records: Records) -> None:
    """From now on every library that Triton loads, built or found, is put among the records."""
    from triton.runtime import build

    load: Any = getattr(build, "_load_module_from_path", None)
    if load is None or hasattr(load, "whet_watches"):
        return

    def loading(name: str, path: str) -> Any:
        module = load(name, path)
        keep_library(records, str(path))
        return module

    loading.whet_watches = True  # type: ignore[attr-defined]
    build._load_module_from_path = loading


def keep_drivers_library(records: Records) -> None:
    """Where Triton was used before, it was loaded before anybody could watch."""
    from triton.runtime.driver import driver

    active = getattr(driver, "_active", None)  # `active` would make one
    load = getattr(getattr(active, "utils", None), "load_binary", None)
    path = getattr(getattr(load, "__self__", None), "__file__", None)
    if path is not None:
        keep_library(records, str(path))


def keep_library(records: Records, path: str) -> None:
    with _lock, suppress(OSError, WhetError):
        packed = _packed(Path(path))
        if packed is not None and packed.key not in records.binaries:
            records.binaries.put(packed)


def _packed(path: Path) -> PackedKernel | None:
    folder, name = path.parent.name, path.name
    if not _FOLDER.fullmatch(folder) or not _NAME.fullmatch(name):
        return None
    key = hashlib.sha256(f"{folder}/{name}".encode()).hexdigest()
    metadata = {"kind": KIND, "folder": folder, "name": name, "abi": abi()}
    return PackedKernel(key, metadata, {"so": path.read_bytes()})


def abi() -> str:
    """The platform and Python's ABI, as the names of extension modules end."""
    return str(sysconfig.get_config_var("EXT_SUFFIX") or "")


def is_library(metadata: Any) -> bool:
    return bool(metadata.get("kind") == KIND)


def place_library(packed: PackedKernel) -> bool:
    """Puts it into Triton's disk cache; False for another platform's or ABI's."""
    from triton import knobs
    from triton.runtime.cache import FileCacheManager

    folder, name = str(packed.metadata.get("folder")), str(packed.metadata.get("name"))
    fits = packed.metadata.get("abi") == abi() and name.endswith(abi())
    if not fits or not _FOLDER.fullmatch(folder) or not _NAME.fullmatch(name):
        return False
    manager: Any = (knobs.cache.manager_class or FileCacheManager)(folder)
    if manager.get_file(name) is None:
        manager.put(packed.files["so"], name, binary=True)
    return True


def keep_launchers(requests: Sequence[Request], records: Records) -> str:
    """For kernels that were never launched, where Triton has the C compiler build what launches
    them; why that cannot be done, or nothing. How descriptors are passed is known only to a kernel
    that was loaded, so their launchers are left out."""
    try:
        launcher = launcher_class()
    except RuntimeError:
        launcher, missing = None, _needs_launchers()
        if missing:
            return (
                "launchers of what was not recorded are missing, since there is no GPU here: "
                "Triton 3.6 has the C compiler build them where they are first used"
            )
    if launcher is None:
        return ""
    make: Any = launcher
    watch_libraries(records)
    distinct = {
        str(list(one.signature.values())): one
        for one in requests
        if not LauncherBuild(make, one).needs_kernel
    }
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda one: LauncherBuild(make, one).make(), distinct.values()))
    return ""


def _needs_launchers() -> bool:
    from triton.backends.nvidia import driver

    return hasattr(driver, "make_launcher")


def packed_lines(found: Iterable[Specialization]) -> list[str]:
    """Without the folders of this machine."""
    return [json.dumps(_portable(one).to_json(), sort_keys=True) for one in found]


def specializations_in(bundle: Bundle) -> list[Specialization]:
    """Raises `BundleError` for lines that no `whet pack` has written."""
    found = []
    for number, line in enumerate(bundle.jit_lines(), 1):
        try:
            found.append(Specialization.from_json(json.loads(line)))
        except (RecordError, ValueError, RecursionError) as error:
            raise BundleError(
                f"bundle {bundle.path} was rejected: line {number} of its specializations: {error}"
            ) from None
    return found


def _portable(one: Specialization) -> Specialization:
    def base(place: str) -> str:
        return place.rpartition("/")[2]

    return replace(one, place=base(one.place), met=replace(one.met, caller=base(one.met.caller)))


@dataclass(frozen=True)
class JitBinaries:
    """Binaries of these specializations, libraries of the host, and what other folders hold."""

    records: Records
    found: tuple[Specialization, ...]
    others: FolderBinaries | None = None

    def keys(self) -> list[str]:
        wanted = {one.binary for one in self.found if one.binary}
        here = set(self.records.binaries.keys())
        libraries = {key for key in here - wanted if self._is_library(key)}
        others = set() if self.others is None else set(self.others.keys())
        return sorted((wanted & here) | libraries | others)

    def files(self, key: str) -> Mapping[str, bytes]:
        own = FolderBinaries(Path(self.records.binaries.path))
        if key in self.records.binaries:
            return own.files(key)
        assert self.others is not None
        return self.others.files(key)

    def _is_library(self, key: str) -> bool:
        try:
            packed = self.records.binaries.get(key)
        except BinaryError:
            return False
        return packed is not None and is_library(packed.metadata)

    @property
    def libraries(self) -> int:
        """Of this platform and ABI."""
        found = map(self.records.binaries.get, filter(self._is_library, self.keys()))
        return sum(one is not None and one.metadata.get("abi") == abi() for one in found)
