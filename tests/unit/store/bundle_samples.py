"""A store worth packing, and bundles as a stranger might have made them."""

from __future__ import annotations

import hashlib
import json
import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from whet.core.status import Status
from whet.store import MemoryStore, Store
from whet.store.bundles.writing import write_bundle
from whet.testing.samples import a_run, a_timing, a_trial, a_workload

KEY = "ab" * 16
BINARY = {"metadata.json": b'{"name": "matmul", "shared": 0}', "matmul.cubin": bytes(range(256))}

SMALL = a_workload(key={"M": 64})
LARGE = a_workload(key={"M": 4096})
SOFTMAX = a_workload(kernel="softmax")


class Binaries:
    """`BinarySource` with one compiled kernel."""

    def keys(self) -> list[str]:
        return [KEY]

    def files(self, key: str) -> Mapping[str, bytes]:
        return BINARY


def a_store() -> Store:
    """Two kernels, three workloads; a superseded trial, a failure, and runs that chose."""
    store = MemoryStore()
    for workload in (SMALL, LARGE, SOFTMAX):
        store.put_workload(workload)
        store.append(
            [
                a_trial(workload, {"BM": 1}, 30.0),
                a_trial(workload, {"BM": 2}, 20.0),
                a_trial(workload, {"BM": 3}, status=Status.BUILD_ERROR, error="no such thing\n"),
                a_trial(workload, {"BM": 1}, timing=a_timing(25.0, l2="cold")),
            ]
        )
        store.save_run(a_run(workload, {"BM": 1}, started=100.0))
        store.save_run(a_run(workload, {"BM": 2}, started=200.0))
    return store


def a_bundle(folder: Path, **options: Any) -> Path:
    path = folder / "good.whet"
    options = {"models": {"matmul": '{"trees": []}'}, "binaries": Binaries(), **options}
    write_bundle(path, a_store(), created=0.0, **options)
    return path


def entries_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def manifest_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(entries_of(path)["manifest.json"])
    return found


def forged(
    good: Path,
    *,
    manifest: Callable[[dict[str, Any]], object] = lambda manifest: None,
    entries: Mapping[str, bytes | None] | None = None,
    honest: bool = True,
) -> Path:
    """As `good`, with entries replaced, added or (None) removed, and then the manifest changed.

    `honest`: the manifest lists what there is now, with its sizes and hashes.
    """
    body = entries_of(good)
    listed = json.loads(body.pop("manifest.json"))
    for name, data in (entries or {}).items():
        body.pop(name, None)
        if data is not None:
            body[name] = data
    if honest:
        listed["entries"] = {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
            for name, data in body.items()
        }
    manifest(listed)
    return zipped(good, {"manifest.json": json.dumps(listed).encode(), **body})


def zipped(good: Path, body: Mapping[str, bytes]) -> Path:
    return zipped_entries(good, [(zipfile.ZipInfo(name), data) for name, data in body.items()])


def zipped_entries(good: Path, entries: list[tuple[zipfile.ZipInfo, bytes]]) -> Path:
    path = good.with_name("forged.whet")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, data in entries:
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return path


def link_info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info
