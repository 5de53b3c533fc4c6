"""Libraries that Triton has the C compiler build: its module for the driver, and up to 3.6 one
launcher for each signature.

Triton keeps them in its disk cache under a key of their source and the platform, and loads them by
a name that ends in Python's ABI. They are kept and put back under the very same names, so that they
are used only where Triton itself would take them for its own. They are code of the host: who
preloads a bundle trusts whoever packed it.
"""

from __future__ import annotations

import hashlib
import os
import re
import sysconfig
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from whet.core.errors import WhetError
from whet.targets.triton.compiler.launcher import LauncherBuild, launcher_class
from whet.targets.triton.compiler.request import Request
from whet.targets.triton.jit.records import Records
from whet.targets.triton.packed.binary_cache import PackedKernel

KIND = "library"
_FOLDER = re.compile(r"[A-Za-z0-9_-]{16,128}")
_NAME = re.compile(r"[A-Za-z0-9_]{1,64}\.[A-Za-z0-9_.-]{1,80}\.so|[A-Za-z0-9_]{1,64}\.so")

_lock = threading.Lock()
_before_builds: list[Callable[[str], None]] = []


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


def before_builds(act: Callable[[str], None]) -> None:
    """Calls `act` with the library's name before Triton starts the C compiler; what it raises keeps
    it from being started."""
    from triton.runtime import build

    with _lock:
        if act not in _before_builds:
            _before_builds.append(act)
        own: Any = build._build
        if hasattr(own, "whet_watches"):
            return

        def building(name: str, *args: Any, **keywords: Any) -> Any:
            for one in tuple(_before_builds):
                one(name)
            return own(name, *args, **keywords)

        building.whet_watches = True  # type: ignore[attr-defined]
        build._build = building


def keep_drivers_library(records: Records) -> None:
    """Loaded before anybody could watch, where Triton was used before."""
    for path in _of_driver():
        keep_library(records, path)


def keep_library(records: Records, path: str) -> None:
    with _lock, suppress(OSError, WhetError):
        packed = _packed(Path(path))
        if packed is not None and packed.key not in records.binaries:
            records.binaries.put(packed)


def _of_driver() -> Iterable[str]:
    """The driver's module was loaded before anybody could watch, where Triton was used before."""
    from triton.runtime.driver import driver

    active = getattr(driver, "_active", None)  # `active` would make one
    load = getattr(getattr(active, "utils", None), "load_binary", None)
    path = getattr(getattr(load, "__self__", None), "__file__", None)
    return [] if path is None else [str(path)]


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
