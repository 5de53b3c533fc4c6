"""Bundles: what goes in comes out, the same bytes for the same content, and no more is read than
was asked for."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from bundle_samples import BINARY, KEY, LARGE, SMALL, SOFTMAX, a_bundle, a_store, entries_of

import whet
from whet.core.config import Config
from whet.core.errors import StoreError, UsageError
from whet.store import Match, MemoryStore, MergeReport, SqliteStore, StoreWriter
from whet.store.bundles.archive import Archive
from whet.store.bundles.bundle import active_bundle, open_bundle
from whet.store.bundles.writing import FolderBinaries, unpack_bundle, write_bundle
from whet.testing.samples import a_trial, a_workload
from whet.testing.store_kit_base import in_child


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    return a_bundle(tmp_path)


def many(count: int) -> MemoryStore:
    store = MemoryStore()
    for n in range(count):
        workload = a_workload(key={"M": n})
        store.put_workload(workload)
        store.append([a_trial(workload, {"BM": 1}), a_trial(workload, {"BM": 2})])
    return store


def test_a_round_trip_through_a_bundle_loses_nothing(tmp_path: Path) -> None:
    store = a_store()
    write_bundle(tmp_path / "b.whet", store)
    with open_bundle(tmp_path / "b.whet") as bundle, SqliteStore(tmp_path / "s.db") as again:
        unpacked = unpack_bundle(bundle, again)
        assert unpacked.merged == MergeReport(trials=12, runs=6, workloads=3)
        for other in (bundle.store, again):
            assert {one.workload.id: one for one in other.workloads()} == {
                one.workload.id: one for one in store.workloads()
            }
            for workload in (SMALL, LARGE, SOFTMAX):
                for every in (False, True):
                    assert other.trials(workload.id, all=every) == store.trials(
                        workload.id, all=every
                    )
                assert other.runs(workload.id) == store.runs(workload.id)
        assert unpack_bundle(bundle, again).merged == MergeReport()


def test_what_a_merge_made_the_latest_is_the_latest_in_the_bundle(tmp_path: Path) -> None:
    mine, theirs, workload = MemoryStore(), MemoryStore(), a_workload()
    for store, created in ((mine, 20.0), (theirs, 10.0)):
        store.put_workload(workload)
        store.append([a_trial(workload, created=created)])
    mine.merge(theirs)
    write_bundle(tmp_path / "b.whet", mine)
    with open_bundle(tmp_path / "b.whet") as bundle:
        assert [trial.created for trial in bundle.store.trials(workload.id, all=True)] == [20, 10]
        assert [trial.created for trial in bundle.store.trials(workload.id)] == [20]


def test_the_same_content_gives_the_same_bytes_but_for_the_date(tmp_path: Path) -> None:
    store, other_order = a_store(), MemoryStore()
    other_order.merge(store)
    for name, source, created in (("a", store, 5.0), ("b", other_order, 5.0), ("c", store, 6.0)):
        write_bundle(tmp_path / name, source, created=created)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    one, other = (entries_of(tmp_path / name) for name in "ac")
    assert [name for name in one if one[name] != other[name]] == ["manifest.json"]
    differing = [json.loads(parts.pop("manifest.json")) for parts in (one, other)]
    assert {manifest.pop("created") for manifest in differing} == {
        "1970-01-01T00:00:05Z",
        "1970-01-01T00:00:06Z",
    }
    assert differing[0] == differing[1]


def test_the_manifest_says_versions_devices_and_hashes(packed: Path) -> None:
    entries = entries_of(packed)
    manifest = json.loads(entries.pop("manifest.json"))
    assert (manifest["format"], manifest["version"]) == ("whet-bundle", 1)
    assert manifest["whet"] == whet.__version__
    assert manifest["toolchains"] == [{"cc": "gcc 12.2.0"}]
    assert [device["name"] for device in manifest["devices"]] == ["Test CPU"]
    assert manifest["kernels"] == [
        {"name": "matmul", "workloads": 2, "trials": 8, "runs": 4},
        {"name": "softmax", "workloads": 1, "trials": 4, "runs": 2},
    ]
    assert manifest["entries"] == {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in entries.items()
    }


def test_models_and_binaries_come_back_as_they_were(packed: Path) -> None:
    with open_bundle(packed) as bundle:
        assert bundle.model("matmul") == '{"trees": []}'
        assert bundle.model("softmax") is None
        metadata, files = bundle.binary(KEY) or ({}, {})
        assert metadata == {"name": "matmul", "shared": 0}
        assert files == {"matmul.cubin": BINARY["matmul.cubin"]}
        assert bundle.binary("00" * 16) is None
        assert bundle.binary_keys() == [KEY]


@pytest.mark.parametrize("kernel", ["a/b", "..", "<lambda>", "größe", "a.b.<locals>.c", " "])
def test_a_model_may_be_of_a_kernel_with_any_name(tmp_path: Path, kernel: str) -> None:
    write_bundle(tmp_path / "b", MemoryStore(), models={kernel: "text"})
    with open_bundle(tmp_path / "b") as bundle:
        assert bundle.model(kernel) == "text"


def test_binaries_travel_from_folder_to_folder(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    (source / KEY).mkdir(parents=True)
    for name, data in BINARY.items():
        (source / KEY / name).write_bytes(data)
    (source / KEY / ".draft").write_bytes(b"unfinished")
    (source / "not-a-key").mkdir()
    write_bundle(tmp_path / "b", MemoryStore(), binaries=FolderBinaries(source))
    with open_bundle(tmp_path / "b") as bundle:
        assert unpack_bundle(bundle, MemoryStore(), target).binaries == 1
        assert unpack_bundle(bundle, MemoryStore(), target).binaries == 0
    assert [path.name for path in target.iterdir()] == [KEY]
    assert {path.name: path.read_bytes() for path in (target / KEY).iterdir()} == BINARY


def test_a_binary_without_metadata_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "from" / KEY).mkdir(parents=True)
    with pytest.raises(UsageError, match=r"metadata\.json"):
        write_bundle(tmp_path / "b", MemoryStore(), binaries=FolderBinaries(tmp_path / "from"))
    assert not (tmp_path / "b").exists()


def test_kernels_can_be_chosen(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", a_store(), kernels=["softmax"])
    with open_bundle(tmp_path / "b") as bundle:
        assert [one.workload for one in bundle.store.workloads()] == [SOFTMAX]
    with pytest.raises(UsageError, match="did you mean 'softmax'"):
        write_bundle(tmp_path / "c", a_store(), kernels=["sotfmax"])
    assert not (tmp_path / "c").exists()


def test_best_only_keeps_the_choice_and_the_run_that_made_it(tmp_path: Path) -> None:
    store = a_store()
    write_bundle(tmp_path / "b", store, best_only=True)
    with open_bundle(tmp_path / "b") as bundle:
        assert bundle.manifest.best_only
        for workload in (SMALL, LARGE, SOFTMAX):
            assert bundle.store.best(workload.id) == store.best(workload.id)
            assert len(bundle.store.trials(workload.id, all=True)) == 1
            assert bundle.store.runs(workload.id) == store.runs(workload.id)[:1]


def test_a_workload_that_was_never_tried_is_left_out(tmp_path: Path) -> None:
    store = a_store()
    store.put_workload(a_workload(key={"M": 1}))
    write_bundle(tmp_path / "b", store)
    with open_bundle(tmp_path / "b") as bundle:
        assert len(bundle.store.workloads()) == 3
        match = bundle.store.match(a_workload(key={"M": 1}))
        assert match == Match("loose", SMALL, ("key",))


def test_another_toolchain_or_driver_is_a_loose_match_that_says_so(packed: Path) -> None:
    other = a_workload(key={"M": 64}, toolchain={"cc": "gcc 13"})
    with open_bundle(packed) as bundle:
        assert bundle.store.match(SMALL) == Match("strict", SMALL)
        assert bundle.store.match(other) == Match("loose", SMALL, ("toolchain",))


def test_a_bundle_has_nothing_that_writes(packed: Path) -> None:
    before = packed.read_bytes()
    writing = [name for name in dir(StoreWriter) if not name.startswith("_")]
    assert {"append", "merge"} < set(writing)
    with open_bundle(packed) as bundle:
        assert bundle.store.read_only
        assert [name for name in writing if hasattr(bundle.store, name)] == []
        with pytest.raises(OSError, match="Read-only"):
            bundle.store.models["a"] = "text"
    assert packed.read_bytes() == before


def test_a_closed_bundle_says_so(packed: Path) -> None:
    with open_bundle(packed) as bundle:
        pass
    with pytest.raises(StoreError, match="closed"):
        bundle.store.best(SMALL.id)


def test_only_a_bundle_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "b"
    write_bundle(path, a_store())
    write_bundle(path, MemoryStore())
    with open_bundle(path) as bundle:
        assert bundle.store.workloads() == []
    path.write_bytes(b"somebody's thesis")
    with pytest.raises(UsageError, match="not a bundle"):
        write_bundle(path, a_store())
    assert path.read_bytes() == b"somebody's thesis"


def test_a_pack_that_fails_leaves_the_old_file_and_nothing_else(packed: Path) -> None:
    before = packed.read_bytes()
    store = MemoryStore()
    store.put_workload(odd := a_workload(kernel="kernel\x1b[2J"))
    store.append([a_trial(odd)])
    with pytest.raises(UsageError, match="was not written"):
        write_bundle(packed, store)
    assert packed.read_bytes() == before
    assert [path.name for path in packed.parent.iterdir()] == [packed.name]


def test_a_folder_that_does_not_exist_is_said_to_be_the_trouble(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        write_bundle(tmp_path / "nowhere" / "b", a_store())


class Counting(Archive):
    """Counts the bytes that were unpacked, by entry."""

    read_bytes: Counter[str]

    def read(self, name: str) -> bytes:
        data = super().read(name)
        self.read_bytes[name] += len(data)
        return data


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    reads: Counter[str] = Counter()
    monkeypatch.setattr(Counting, "read_bytes", reads, raising=False)
    monkeypatch.setattr("whet.store.bundles.bundle.Archive", Counting)
    return reads


def test_opening_reads_only_the_manifest(packed: Path, counted: Counter[str]) -> None:
    open_bundle(packed).close()
    assert not counted


@pytest.mark.slow
def test_one_look_up_reads_a_small_part_of_a_large_bundle(
    tmp_path: Path, counted: Counter[str]
) -> None:
    write_bundle(tmp_path / "b", many(3000))
    with open_bundle(tmp_path / "b") as bundle:
        wanted = a_workload(key={"M": 77})
        assert bundle.store.match(wanted) == Match("strict", wanted)
        assert bundle.store.best(wanted.id) is not None
        assert len(counted) == 1
        assert sum(counted.values()) < bundle.manifest.bytes / 10


@pytest.mark.slow
def test_a_loose_match_reads_no_trials_but_those_of_its_answer(
    tmp_path: Path, counted: Counter[str]
) -> None:
    write_bundle(tmp_path / "b", many(3000))
    with open_bundle(tmp_path / "b") as bundle:
        match = bundle.store.match(a_workload(key={"M": 77.1}))
        assert match == Match("loose", a_workload(key={"M": 77}), ("key",))
        assert [name for name in counted if not name.startswith("store-")] == ["index-0.jsonl"]
        assert len(counted) == 2


def test_what_was_read_is_not_read_again(packed: Path, counted: Counter[str]) -> None:
    with open_bundle(packed) as bundle:
        bundle.store.best(SMALL.id)
        once = dict(counted)
        bundle.store.best(SMALL.id)
        bundle.store.trials(LARGE.id)
        assert counted == once


@pytest.mark.medium
def test_a_forked_child_and_its_parent_read_at_once(packed: Path) -> None:
    with open_bundle(packed) as bundle:
        assert in_child(lambda: bundle.store.best(SMALL.id) is not None)
        assert in_child(lambda: bundle.binary_files(KEY) == BINARY)
        best = bundle.store.best(SMALL.id)
        assert best is not None
        assert best.config == Config(BM=2)


def test_the_bundle_in_use_is_opened_once_until_its_file_is_another(packed: Path) -> None:
    first = active_bundle(packed)
    assert active_bundle(str(packed)) is first
    write_bundle(packed, MemoryStore())
    os.utime(packed, ns=(1, 1))
    assert active_bundle(packed) is not first
    assert active_bundle(packed).store.workloads() == []
    assert first.store.best(SMALL.id) is not None
