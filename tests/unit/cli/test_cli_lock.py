"""`whet lock`: written from a store, compared, checked and merged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import whet as library
from cli_runs import Whet, refused
from whet.core.config import Config
from whet.engine.lockfile.entries import LockEntry, read_lock, write_lock
from whet.testing.samples import a_run, a_trial, a_workload

KEYS = (512, 1024)


def stored(path: Path, best: int = 64) -> None:
    with library.open_store(path) as store:
        for n in KEYS:
            workload = a_workload(key={"N": n})
            store.put_workload(workload)
            fast, slow = Config(BM=best), Config(BM=32)
            store.append([a_trial(workload, fast, 900.0), a_trial(workload, slow, 1000.0)])
            store.save_run(a_run(workload, fast))


@pytest.fixture(autouse=True)
def _a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    stored(tmp_path / "store.db")


def test_update_writes_what_the_store_chose_and_then_nothing_more(whet: Whet) -> None:
    first = whet("lock", "update")
    assert first.code == 0
    assert "+ matmul(N=512) on Test CPU: [BM=64]" in first.out
    assert "whet.lock: 2 choices (2 added)" in first.out
    again = whet("lock", "update")
    assert again.out == "whet.lock: 2 choices (unchanged)\n"


def test_update_names_what_no_run_has_confirmed(whet: Whet, tmp_path: Path) -> None:
    with library.open_store(tmp_path / "store.db") as store:
        cut = replace(
            a_run(a_workload(key={"N": 512}), Config(BM=64), started=2e9), provisional=True
        )
        store.save_run(cut)
    name = "matmul(N=512) on Test CPU"
    assert f"provisional: {name}; tune" in whet("lock", "update").out
    assert json.loads(whet("lock", "update", "--json").out)["provisional"] == [name]


def test_update_keeps_what_the_store_does_not_know_unless_told_to_prune(whet: Whet) -> None:
    other = LockEntry.of(a_workload(kernel="elsewhere"), Config(BM=8))
    write_lock(Path("whet.lock"), [other])
    whet("lock", "update")
    assert other in read_lock("whet.lock").entries
    assert "- elsewhere" in whet("lock", "update", "--prune").out
    assert other not in read_lock("whet.lock").entries


def test_keep_changes_no_entry(whet: Whet) -> None:
    mine = LockEntry.of(a_workload(key={"N": 512}), Config(BM=32))
    write_lock(Path("whet.lock"), [mine])
    assert whet("lock", "update", "--dry-run").code == 1
    whet("lock", "update", "--keep")
    assert mine in read_lock("whet.lock").entries
    assert len(read_lock("whet.lock").entries) == 2


@pytest.mark.medium
def test_diff_says_what_a_review_has_to_see(whet: Whet) -> None:
    whet("lock", "update")
    same = whet("lock", "update", "--dry-run")
    assert (same.code, same.out.count("\n")) == (0, 1)
    before = Path("whet.lock").read_text()
    assert whet("lock", "update", "--dry-run", "--prune", "--kernel", "matmul").code == 0
    assert Path("whet.lock").read_text() == before
    stale = LockEntry.of(a_workload(key={"N": 512}), Config(BM=32))
    write_lock(Path("old.lock"), [stale])
    ran = whet("lock", "merge", "--dry-run", "old.lock", "whet.lock")
    assert ran.code == 1
    assert ran.out.splitlines() == [
        "+ matmul(N=1024) on Test CPU: [BM=64]",
        "~ matmul(N=512) on Test CPU: [BM=32] -> [BM=64]",
        "1 added, 1 changed",
    ]
    found = json.loads(whet("lock", "merge", "--dry-run", "old.lock", "whet.lock", "--json").out)
    assert found["changed"][0]["before"] == {"BM": 32}


def test_check_finds_a_changed_line_and_accepts_it_on_request(whet: Whet) -> None:
    whet("lock", "update")
    path = Path("whet.lock")
    path.write_text(path.read_text().replace('"BM": 64', '"BM": 32', 1))
    ran = whet("lock", "check")
    assert ran.code == 2
    assert "not fit" in ran.err
    assert whet("lock", "check", "--accept").code == 0
    assert whet("lock", "check").out.startswith("whet.lock: 2 choices of 1 kernel, digest ")


def test_merge_shows_conflicts_and_resolves_none(whet: Whet) -> None:
    for name, block in (("ours.lock", 64), ("theirs.lock", 128)):
        some = [LockEntry.of(a_workload(key={"N": 512}), Config(BM=block))]
        some.append(LockEntry.of(a_workload(key={"N": block}), Config(BM=block)))
        write_lock(Path(name), some)
    ran = whet("lock", "merge", "ours.lock", "theirs.lock", "-o", "whet.lock")
    assert ran.code == 1
    assert ran.out.splitlines() == [
        "conflict: matmul(N=512) on Test CPU",
        "  ours.lock: [BM=64] with cc gcc 12.2.0",
        "  theirs.lock: [BM=128] with cc gcc 12.2.0",
        "2 choices, 1 conflict; written to whet.lock",
    ]
    assert "merge conflict" in refused(whet("lock", "check"))
    base = [LockEntry.of(a_workload(key={"N": 512}), Config(BM=64))]
    write_lock(Path("base.lock"), base)
    ran = whet("lock", "merge", "ours.lock", "theirs.lock", "--base", "base.lock", "-o", "m.lock")
    assert ran.code == 0
    locked = {one.key["N"]: one.config["BM"] for one in read_lock("m.lock").entries}
    assert locked == {64: 64, 128: 128, 512: 128}


def test_merge_without_output_writes_nothing(whet: Whet) -> None:
    whet("lock", "update")
    before = Path("whet.lock").read_bytes()
    ran = whet("lock", "merge", "whet.lock", "whet.lock", "--json")
    assert json.loads(ran.out) == {"v": 1, "entries": 2, "conflicts": []}
    assert Path("whet.lock").read_bytes() == before


def test_pack_takes_what_is_locked_and_makes_it_the_best(whet: Whet) -> None:
    locked = [LockEntry.of(a_workload(key={"N": 512}), Config(BM=32))]
    locked.append(LockEntry.of(a_workload(key={"N": 4}), Config(BM=32)))
    write_lock(Path("whet.lock"), locked)
    ran = whet("pack", "results.whet", "--lock", "whet.lock")
    assert ran.code == 0
    assert "matmul(N=4) on Test CPU: [BM=32] is locked" in ran.err
    from whet.store.bundles.bundle import open_bundle

    with open_bundle(Path("results.whet")) as bundle:
        [known] = bundle.store.workloads()
        assert known.workload.key == {"N": 512}
        assert known.best_config == Config(BM=32)
