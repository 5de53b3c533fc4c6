"""Missed keys travel in a bundle, where they were asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bundle_samples import LARGE, SOFTMAX, a_bundle, a_store, entries_of, forged

from whet.core.errors import BundleError
from whet.core.frozen import FrozenMap
from whet.core.miss import Argument, LaunchGrid, Miss, Placement
from whet.core.workload import Origin
from whet.store import MemoryStore
from whet.store.bundles.bundle import open_bundle
from whet.store.bundles.writing import unpack_bundle, write_bundle
from whet.testing.samples import a_workload

MISS = Miss(
    replace(
        a_workload(key={"M": 77}),
        origin=Origin("c", FrozenMap(), ("/home/somebody/lib/ops.py:matmul",)),
    ),
    "/home/somebody/lib/ops.py:matmul",
    (
        Argument("x", "Tensor", "torch.float16", (4, 8), None, Placement((8, 1), 2, 0, 16)),
        Argument("offsets", "Tensor", "torch.int32", (2,), (0, 77), Placement((1,), 0, 1, 512)),
        Argument("n", "int", value=77),
        Argument("f", "function"),
    ),
    5.0,
    (LaunchGrid(FrozenMap({"BM": 16}), (4, 2)), LaunchGrid(FrozenMap({"BM": 32}), (2, 2))),
    2,
)


def packed(folder: Path, **options: Any) -> Path:
    store = a_store()
    store.miss(MISS)
    path = folder / "missed.whet"
    write_bundle(path, store, created=0.0, **options)
    return path


def test_a_missed_key_arrives_whole_but_for_the_folders_of_the_machine(tmp_path: Path) -> None:
    mine = MemoryStore()
    with open_bundle(packed(tmp_path, missed=True)) as bundle:
        unpack_bundle(bundle, mine)
    [miss] = mine.missed()
    assert miss == replace(MISS, where="ops.py:matmul")
    assert miss.workload.origin.places == ("ops.py:matmul",)
    assert b"somebody" not in entries_of(tmp_path / "missed.whet")["missed.jsonl"]


def test_a_store_with_nothing_but_missed_keys_can_be_packed(tmp_path: Path) -> None:
    store = MemoryStore()
    store.miss(MISS)
    write_bundle(tmp_path / "m.whet", store, missed=True)
    with open_bundle(tmp_path / "m.whet") as bundle:
        bundle.check()
        assert len(bundle.store.missed("matmul")) == 1
        assert bundle.store.missed("softmax") == []


def test_without_asking_a_bundle_is_what_it_was(tmp_path: Path) -> None:
    path = packed(tmp_path)
    assert "missed.jsonl" not in entries_of(path)
    with open_bundle(path) as bundle:
        assert bundle.store.missed() == []


def test_only_missed_keys_of_the_kernels_that_were_asked_for_are_packed(tmp_path: Path) -> None:
    with open_bundle(packed(tmp_path, missed=True, workloads=[SOFTMAX.id])) as bundle:
        assert bundle.store.missed() == []
    with open_bundle(packed(tmp_path, missed=True, kernels=["matmul"])) as bundle:
        assert len(bundle.store.missed()) == 1


def test_what_is_known_here_is_not_missed_here(tmp_path: Path) -> None:
    store = MemoryStore()
    store.miss(replace(MISS, workload=LARGE))
    write_bundle(tmp_path / "m.whet", store, missed=True)
    mine = a_store()
    with open_bundle(tmp_path / "m.whet") as bundle:
        unpack_bundle(bundle, mine)
    assert mine.missed() == []


def _set(*path: str | int, value: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for part in path[:-1]:
            data = data[part]
        data[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("where", value="a\x1b[31m"),
        _set("at", value=float("inf")),
        _set("positional", value=-1),
        _set("positional", value=True),
        _set("grids", value=[{"values": {}, "size": [1.5]}]),
        _set("grids", value=[{"values": {"BM": {}}, "size": [1]}]),
        _set("grids", value=7),
        _set("arguments", value={}),
        _set("arguments", 0, "name", value=None),
        _set("arguments", 0, "shape", value=[-1]),
        _set("arguments", 0, "placement", "stride", value=[-8, 1]),
        _set("arguments", 0, "placement", "offset", value="2"),
        _set("arguments", 0, "placement", value=[]),
        _set("workload", "kernel", value=3),
        _set("workload", "key", value=[]),
    ],
)
def test_a_missed_key_that_somebody_has_tampered_with_is_refused_in_one_line(
    tmp_path: Path, change: Callable[[Any], None]
) -> None:
    data = json.loads(entries_of(packed(tmp_path, missed=True))["missed.jsonl"])
    change(data)
    bad = forged(a_bundle(tmp_path), entries={"missed.jsonl": json.dumps(data).encode()})
    mine = MemoryStore()
    with pytest.raises(BundleError) as raised, open_bundle(bad) as bundle:
        unpack_bundle(bundle, mine)
    assert "\n" not in str(raised.value)
    assert mine.workloads() == []
    assert mine.missed() == []


@pytest.mark.parametrize("line", [b"not JSON", b"[]", b"null", b"\xff", b"[" * 5000])
def test_what_is_no_missed_key_is_refused(tmp_path: Path, line: bytes) -> None:
    bad = forged(a_bundle(tmp_path), entries={"missed.jsonl": line})
    with pytest.raises(BundleError), open_bundle(bad) as bundle:
        bundle.check()
