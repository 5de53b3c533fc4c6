"""A folder of packed kernels: what is put is got, and nothing else is believed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from whet.store import MemoryStore
from whet.store.bundles.bundle import open_bundle
from whet.store.bundles.writing import FolderBinaries, write_bundle
from whet.targets.triton.packed.binary_cache import (
    MOST_BYTES,
    BinaryError,
    BundleCache,
    FolderCache,
    PackedKernel,
)

KEY = "0123456789abcdef" * 3
OTHER = "f" * 48
RECORD = "metadata.json"


def packed(key: str = KEY, body: bytes = b"\x7fELF") -> PackedKernel:
    return PackedKernel(key, {"kernel": "mm", "sizes": [1, 2]}, {"cubin": body, "ttir": b"module"})


@pytest.fixture
def cache(tmp_path: Path) -> FolderCache:
    return FolderCache(tmp_path / "not" / "there" / "yet")


def test_what_was_put_is_got_and_nothing_else(cache: FolderCache) -> None:
    assert cache.get(KEY) is None
    assert list(cache.keys()) == []

    cache.put(packed(OTHER))
    assert cache.get(KEY) is None

    cache.put(packed(body=b"old"))
    cache.put(packed())
    assert cache.get(KEY) == packed()
    assert KEY in cache
    assert sorted(os.listdir(cache.path)) == list(cache.keys()) == [KEY, OTHER]


def test_a_bundle_gives_what_was_put_and_takes_nothing(cache: FolderCache, tmp_path: Path) -> None:
    cache.put(packed())
    write_bundle(tmp_path / "b.whet", MemoryStore(), binaries=FolderBinaries(cache.path))

    with open_bundle(tmp_path / "b.whet") as bundle:
        bundled = BundleCache(bundle)
        assert list(bundled.keys()) == [KEY]
        assert bundled.get(KEY) == packed()
        assert bundled.get(OTHER) is None
        with pytest.raises(BinaryError, match="whet pack"):
            bundled.put(packed(OTHER))


def test_a_record_in_a_bundle_that_is_not_of_its_files_is_refused(
    cache: FolderCache, tmp_path: Path
) -> None:
    cache.put(packed())
    (cache.path / KEY / "cubin").write_bytes(b"something else")
    write_bundle(tmp_path / "b.whet", MemoryStore(), binaries=FolderBinaries(cache.path))

    with (
        open_bundle(tmp_path / "b.whet") as bundle,
        pytest.raises(BinaryError, match="cubin does not match its checksum"),
    ):
        BundleCache(bundle).get(KEY)


@pytest.mark.medium
def test_many_may_put_the_same_at_once(cache: FolderCache) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: cache.put(packed()), range(200)))

    assert cache.get(KEY) == packed()
    assert os.listdir(cache.path) == [KEY]


def test_other_things_in_the_folder_are_not_keys(cache: FolderCache) -> None:
    cache.put(packed())
    (cache.path / "README").write_text("hello")
    (cache.path / ".0123.new").mkdir()

    assert list(cache.keys()) == [KEY]


@pytest.mark.parametrize("key", ["", "..", "a/b", "../" + KEY, KEY.upper(), "0" * 31, "0" * 129])
def test_a_key_that_could_be_a_path_is_refused(cache: FolderCache, key: str) -> None:
    with pytest.raises(BinaryError, match="not the key"):
        cache.get(key)
    with pytest.raises(BinaryError, match="not the key"):
        PackedKernel(key, {}, {})


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "/etc/passwd", "..\\a", ".hidden", "a..b", "metadata.json", "a\0"],
)
def test_a_file_name_that_could_be_a_path_is_refused(name: str) -> None:
    with pytest.raises(BinaryError, match="not a valid file name"):
        PackedKernel(KEY, {}, {name: b""})


def test_files_and_metadata_are_bounded() -> None:
    with pytest.raises(BinaryError, match="at most"):
        PackedKernel(KEY, {}, {f"stage{i}": b"" for i in range(100)})
    with pytest.raises(BinaryError, match="too large"):
        PackedKernel(KEY, {"text": "x" * 2**21}, {})


def rewritten(change: Callable[[Any], None]) -> Callable[[FolderCache], None]:
    def damage(cache: FolderCache) -> None:
        record = cache.path / KEY / RECORD
        data = json.loads(record.read_text())
        change(data)
        record.write_text(json.dumps(data))

    return damage


def declare_escape(data: Any) -> None:
    data["files"]["../../secret"] = data["files"].pop("cubin")


def written(body: bytes, name: str = "cubin") -> Callable[[FolderCache], None]:
    def damage(cache: FolderCache) -> None:
        (cache.path / KEY / name).write_bytes(body)

    return damage


def remove(cache: FolderCache) -> None:
    (cache.path / KEY / "cubin").unlink()


def link(cache: FolderCache) -> None:
    (cache.path / KEY / "cubin").rename(cache.path / "elsewhere")
    (cache.path / KEY / "cubin").symlink_to(cache.path / "elsewhere")


def make_pipe(cache: FolderCache) -> None:
    remove(cache)
    os.mkfifo(cache.path / KEY / "cubin")


@pytest.mark.parametrize(
    "damage",
    [
        written(b"\x7fE"),
        written(b"\x7fELG"),
        remove,
        link,
        make_pipe,
        rewritten(declare_escape),
        rewritten(lambda data: data["files"]["cubin"].update(bytes=MOST_BYTES + 1)),
        rewritten(lambda data: data.update(key=OTHER)),
        rewritten(lambda data: data.update(v=2)),
        rewritten(lambda data: data.pop("files")),
        rewritten(lambda data: data.update(metadata=3)),
        rewritten(lambda data: data["files"]["cubin"].update(bytes="4")),
        rewritten(lambda data: data["files"]["cubin"].update(bytes=-1)),
        rewritten(lambda data: data["files"]["cubin"].pop("sha256")),
        *(written(body, RECORD) for body in (b"{", b"[" * 100_000, b"\xff\xfe", b"x" * 2**21)),
    ],
)
def test_a_damaged_kernel_is_refused_by_its_place_and_can_be_put_anew(
    cache: FolderCache, damage: Callable[[FolderCache], None]
) -> None:
    cache.put(packed())
    damage(cache)
    with pytest.raises(BinaryError, match=KEY):
        cache.get(KEY)

    cache.put(packed())
    assert cache.get(KEY) == packed()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(BinaryError, match=r"cannot write .*file: .*; choose another"):
        FolderCache(tmp_path / "file").put(packed())


def test_a_shelf_keeps_its_place_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cache = FolderCache("here")
    cache.put(packed())
    monkeypatch.chdir("/")

    assert cache.get(KEY) == packed()
