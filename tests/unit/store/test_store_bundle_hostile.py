"""Bundles that somebody has tampered with: refused in one line, and nothing is written."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import struct
import tracemalloc
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundle_samples import (
    BINARY,
    KEY,
    a_bundle,
    entries_of,
    forged,
    link_info,
    manifest_of,
    zipped,
    zipped_entries,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from whet.core.errors import BundleError, StoreError, UsageError
from whet.store import MemoryStore
from whet.store.bundles.archive import MAX_ENTRY_BYTES, MAX_MANIFEST_BYTES
from whet.store.bundles.bundle import open_bundle
from whet.store.bundles.writing import unpack_bundle

BINARY_ENTRY = f"binaries/{KEY}/matmul.cubin"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return a_bundle(tmp_path)


def refusal(path: Path) -> str:
    """What is said of a bundle that must not get as far as being unpacked."""
    before = sorted(path.parent.rglob("*"))
    store, folder = MemoryStore(), path.parent / "unpacked"
    with pytest.raises(BundleError) as raised, open_bundle(path) as bundle:
        unpack_bundle(bundle, store, folder)
    assert store.workloads() == []
    assert sorted(path.parent.rglob("*")) == before
    text = str(raised.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def test_the_samples_are_accepted_as_they_are(good: Path) -> None:
    with open_bundle(forged(good)) as bundle:
        bundle.check()


def test_a_refusal_is_a_usage_error_and_a_store_error() -> None:
    assert issubclass(BundleError, UsageError)
    assert issubclass(BundleError, StoreError)
    assert BundleError.exit_code == 2


@pytest.mark.parametrize(
    "name",
    [
        "../escaped",
        "/etc/escaped",
        "binaries/../../escaped",
        f"binaries/{KEY}/../../../escaped",
        f"binaries/{KEY}/..",
        f"binaries/{KEY}/.hidden",
        f"binaries/{KEY}/a/b",
        f"binaries\\{KEY}\\escaped",
        f"binaries/{KEY}/..\\escaped",
        f"binaries/{KEY}/C:",
        f"binaries/{KEY}/",
        f"binaries/{KEY}/line\nbreak",
        "binaries//escaped",
        "binaries/NOTHEX00/escaped",
        "models/../escaped.json",
        "models/.json/x",
        "store-../.jsonl",
        "surprise.py",
        "",
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused(good: Path, name: str) -> None:
    refusal(forged(good, entries={name: b"x"}))


def test_a_name_that_zip_readers_cut_short_is_refused(good: Path) -> None:
    path = forged(good, entries={f"binaries/{KEY}/aaaXbbb": b"x"})
    path.write_bytes(path.read_bytes().replace(b"aaaXbbb", b"aaa\0bbb"))
    refusal(path)


@pytest.mark.parametrize("name", [BINARY_ENTRY, "binaries"])
def test_a_symbolic_link_is_refused(good: Path, name: str) -> None:
    body = entries_of(good) | {name: b"/etc/passwd"}
    listed = json.loads(body["manifest.json"])
    listed["entries"][name] = {"sha256": hashlib.sha256(body[name]).hexdigest(), "bytes": 11}
    body["manifest.json"] = json.dumps(listed).encode()
    infos = [(link_info(n) if n == name else zipfile.ZipInfo(n), data) for n, data in body.items()]
    assert "plain file" in refusal(zipped_entries(good, infos))


@pytest.mark.parametrize(
    "name", [BINARY_ENTRY, "store.jsonl", "index-0.jsonl", "models/matmul.json"]
)
def test_a_wrong_hash_is_refused(good: Path, name: str) -> None:
    def lie(manifest: dict[str, Any]) -> None:
        manifest["entries"][name]["sha256"] = "0" * 64

    assert "hash" in refusal(forged(good, manifest=lie))


def test_changed_bytes_of_the_same_length_are_refused(good: Path) -> None:
    other = BINARY["matmul.cubin"][::-1]
    assert "hash" in refusal(forged(good, entries={BINARY_ENTRY: other}, honest=False))


@pytest.mark.parametrize("size", [MAX_ENTRY_BYTES + 1, 1 << 62, -1, 1.5, "9", None, True])
def test_a_declared_size_that_cannot_be_is_refused(good: Path, size: object) -> None:
    def lie(manifest: dict[str, Any]) -> None:
        manifest["entries"][BINARY_ENTRY]["bytes"] = size

    refusal(forged(good, manifest=lie))


def test_entries_that_are_too_large_together_are_refused(good: Path) -> None:
    def lie(manifest: dict[str, Any]) -> None:
        for n in range(40):
            entry = {"sha256": "0" * 64, "bytes": MAX_ENTRY_BYTES}
            manifest["entries"][f"binaries/{KEY}/{n}"] = entry

    assert "declare" in refusal(forged(good, manifest=lie))


@pytest.mark.medium
@pytest.mark.parametrize("stated", [1, 256, 150_000, 200_000])
def test_a_bomb_is_stopped_at_its_declared_size(good: Path, stated: int) -> None:
    """A hundred MiB of zeros, with another size written in every place that states one."""
    bomb = bytes(100 << 20)

    def lie(manifest: dict[str, Any]) -> None:
        manifest["entries"][BINARY_ENTRY]["bytes"] = stated

    path = forged(good, entries={BINARY_ENTRY: bomb}, honest=False, manifest=lie)
    data = path.read_bytes()
    assert data.count(struct.pack("<I", len(bomb))) == 2
    path.write_bytes(data.replace(struct.pack("<I", len(bomb)), struct.pack("<I", stated)))
    with open_bundle(path) as bundle:
        tracemalloc.start()
        try:
            with pytest.raises(BundleError, match=r"declares|declared size|larger compressed"):
                bundle.binary(KEY)
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()
    refusal(path)


@pytest.mark.medium
def test_a_bomb_in_the_manifests_place_is_refused(good: Path) -> None:
    bomb = b" " * (MAX_MANIFEST_BYTES + 1)
    assert "manifest declares" in refusal(zipped(good, {"manifest.json": bomb}))


def test_padding_behind_the_packed_bytes_is_refused(good: Path) -> None:
    packer = zlib.compressobj(wbits=-15)
    padded = packer.compress(b"x" * 200) + packer.flush() + b"hidden"
    path = good.with_name("forged.whet")
    info = zipfile.ZipInfo("manifest.json")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, padded)
    data = bytearray(path.read_bytes())
    for at, method, size in ((0, 8, 22), (data.index(b"PK\x01\x02"), 10, 24)):
        struct.pack_into("<H", data, at + method, 8)
        struct.pack_into("<I", data, at + size, 200)
    path.write_bytes(data)
    assert "declared size" in refusal(path)


@pytest.mark.parametrize("tenths", range(10))
def test_a_bundle_cut_short_anywhere_is_refused(good: Path, tenths: int) -> None:
    data = good.read_bytes()
    cut = good.with_name("cut.whet")
    cut.write_bytes(data[: len(data) * tenths // 10])
    refusal(cut)


def test_a_bundle_with_something_before_or_behind_it_is_refused(good: Path) -> None:
    data, path = good.read_bytes(), good.with_name("longer.whet")
    for longer in (data + b"x", b"x" + data, b"PK\x03\x04" + data):
        path.write_bytes(longer)
        refusal(path)


@pytest.mark.parametrize(
    "content", [b"", b"x", b"SQLite format 3\0" + bytes(500), b"PK\x03\x04", bytes(1000)]
)
def test_a_file_that_is_no_bundle_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    refusal(path)


def test_a_zip_file_of_somebody_else_is_refused(good: Path) -> None:
    assert "manifest.json" in refusal(zipped(good, {"readme.txt": b"hello"}))


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "nowhere"):
        with pytest.raises(BundleError, match="rejected"):
            open_bundle(path)


def test_a_later_version_is_refused_by_its_number(good: Path) -> None:
    text = refusal(forged(good, manifest=lambda manifest: manifest.update(version=2)))
    assert "version 2" in text


def test_the_same_entry_twice_is_refused(good: Path) -> None:
    infos = [(zipfile.ZipInfo(name), data) for name, data in entries_of(good).items()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = zipped_entries(good, [*infos, infos[-1]])
    assert "twice" in refusal(path)


def test_an_entry_that_is_not_listed_is_refused(good: Path) -> None:
    entries = {f"binaries/{KEY}/more": b"x"}
    assert "not listed" in refusal(forged(good, entries=entries, honest=False))


def test_an_entry_that_is_listed_and_not_there_is_refused(good: Path) -> None:
    assert "missing" in refusal(forged(good, entries={BINARY_ENTRY: None}, honest=False))


def test_a_manifest_that_does_not_come_first_is_refused(good: Path) -> None:
    body = entries_of(good)
    manifest = body.pop("manifest.json")
    assert "not start" in refusal(zipped(good, {**body, "manifest.json": manifest}))


@pytest.mark.medium
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"not JSON",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"format": "other"}',
        b"[" * 100_000,
        b'{"format": "whet-bundle", "version": 1, "version": 1}',
        b'{"format": "whet-bundle", "version": 1}',
        b'{"format": "whet-bundle", "version": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_manifest_that_is_none_is_refused(good: Path, text: bytes) -> None:
    refusal(zipped(good, {**entries_of(good), "manifest.json": text}))


@pytest.mark.parametrize("value", [None, 7, "text", [], {}, [None], ["x"], {"x": None}, -1, True])
def test_each_part_of_a_manifest_has_its_type(good: Path, value: object) -> None:
    parts = manifest_of(good)
    wrong = [name for name, old in parts.items() if type(old) is not type(value) or value == -1]
    assert len(wrong) > len(parts) / 2
    for name in wrong:
        changed = dict.fromkeys([name], value)
        refusal(forged(good, manifest=functools.partial(dict.update, **changed)))


def rewritten(good: Path, change: Callable[[list[dict[str, Any]]], object]) -> Path:
    """With its `store.jsonl` changed by somebody who made the manifest fit."""
    lines = [json.loads(line) for line in entries_of(good)["store.jsonl"].splitlines()]
    change(lines)
    data = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    return forged(good, entries={"store.jsonl": data})


@pytest.mark.parametrize("field", ["created", "config", "cost", "facts", "error", "id", "status"])
@pytest.mark.parametrize("value", [None, [], "\ud800", 10**400, {"x": float("nan")}])
def test_a_field_of_a_trial_with_another_type_is_refused(
    good: Path, field: str, value: object
) -> None:
    refusal(rewritten(good, lambda lines: lines[3].update({field: value})))


@pytest.mark.parametrize("field", ["started", "wall_s", "best", "budget", "outcome", "id", "space"])
@pytest.mark.parametrize("value", [[], "\ud800", 10**400, {"x": float("nan")}])
def test_a_field_of_a_run_with_another_type_is_refused(
    good: Path, field: str, value: object
) -> None:
    refusal(rewritten(good, lambda lines: lines[1].update({field: value})))


@pytest.mark.parametrize("field", ["kernel", "key", "device", "toolchain", "fingerprint"])
@pytest.mark.parametrize("value", [None, [], "\x1b[2J", {"M": 10**400}, {"M": {}}])
def test_a_field_of_a_workload_with_another_type_is_refused(
    good: Path, field: str, value: object
) -> None:
    refusal(rewritten(good, lambda lines: lines[0]["workload"].update({field: value})))


@pytest.mark.parametrize("field", ["code", "captured", "places"])
@pytest.mark.parametrize("value", [None, 1, ["\x1b[2J"], {"M": "\x1b[2J"}])
def test_an_origin_that_is_no_plain_text_is_refused(good: Path, field: str, value: object) -> None:
    origin = {"code": "c0de", "captured": {}, "places": [], field: value}
    refusal(rewritten(good, lambda lines: lines[0]["workload"].update({"origin": origin})))


@pytest.mark.parametrize(
    "change",
    [
        {"trials": 10**9},
        {"trials": 0},
        {"runs": -1},
        {"standing": [0, 0, 0]},
        {"standing": [99]},
        {"standing": []},
        {"id": "0" * 16},
    ],
)
def test_a_workload_that_contradicts_its_lines_is_refused(
    good: Path, change: dict[str, Any]
) -> None:
    refusal(rewritten(good, lambda lines: lines[0].update(change)))


def test_a_workload_that_is_there_twice_is_refused(good: Path) -> None:
    assert "twice" in refusal(rewritten(good, lambda lines: lines.extend(lines[:])))


@pytest.mark.parametrize("change", [{"ok": 9}, {"trials": 0}, {"active": 1.0}])
def test_an_index_that_contradicts_the_results_is_refused(
    good: Path, change: dict[str, Any]
) -> None:
    line, *others = entries_of(good)["index-0.jsonl"].splitlines()
    lines = [json.dumps({**json.loads(line), **change}).encode(), *others]
    for index in (lines, lines[2:]):
        data = b"".join(one + b"\n" for one in index)
        assert "contradict" in refusal(forged(good, entries={"index-0.jsonl": data}))


@pytest.mark.medium
def test_what_is_refused_cannot_write_to_the_terminal(good: Path) -> None:
    escape = {"version": "\x1b[2J"}
    assert "\x1b" not in refusal(forged(good, manifest=lambda manifest: manifest.update(escape)))


def test_a_binary_whose_metadata_is_not_an_object_is_refused(good: Path) -> None:
    for text in (b"[]", b"nothing", b"[" * 100_000):
        refusal(forged(good, entries={f"binaries/{KEY}/metadata.json": text}))
    refusal(forged(good, entries={f"binaries/{KEY}/metadata.json": None}))


def test_a_file_changed_in_place_after_opening_is_refused_when_read(good: Path) -> None:
    with open_bundle(good) as bundle:
        data = good.read_bytes()
        with good.open("r+b") as file:
            file.write(bytes(len(data) - 200))
        with pytest.raises(BundleError):
            bundle.binary(KEY)
        with pytest.raises(BundleError):
            bundle.store.workloads()


FUZZ = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@FUZZ
@given(
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1)
)
@example(flips=[(0.0, 1)])
def test_flipped_bytes_are_refused_or_change_nothing(
    tmp_path: Path, flips: list[tuple[float, int]]
) -> None:
    good = tmp_path / "good.whet"
    if not good.exists():
        a_bundle(tmp_path)
    whole = MemoryStore()
    with open_bundle(good) as bundle:
        whole.merge(bundle.store)
    data = bytearray(good.read_bytes())
    for place, mask in flips:
        data[int(place * len(data))] ^= mask
    path = tmp_path / "flipped.whet"
    path.write_bytes(data)
    try:
        with open_bundle(path) as bundle:
            bundle.check()
            assert bundle.binary_files(KEY) == BINARY
            for summary in whole.workloads():
                id_ = summary.workload.id
                assert bundle.store.trials(id_, all=True) == whole.trials(id_, all=True)
                assert bundle.store.runs(id_) == whole.runs(id_)
    except BundleError:
        pass


@pytest.mark.medium
@FUZZ
@given(content=st.binary(max_size=400), head=st.booleans())
def test_arbitrary_bytes_are_refused(tmp_path: Path, content: bytes, head: bool) -> None:
    path = tmp_path / "arbitrary.whet"
    path.write_bytes((b"PK\x03\x04" if head else b"") + content + b"PK\x05\x06" + bytes(18))
    with pytest.raises(BundleError):
        open_bundle(path)
