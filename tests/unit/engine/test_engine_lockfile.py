"""A lock file: its text, what is chosen from it, how two are merged, and the digest of choices."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.core.config import Config
from whet.core.errors import NotTunedError
from whet.core.workload import Device, Workload
from whet.engine.fallback.untuned import choose
from whet.engine.lockfile import choosing
from whet.engine.lockfile.entries import LockEntry, LockError, lock_text, read_lock, write_lock
from whet.engine.lockfile.in_force import forget_choices, unlocked
from whet.engine.lockfile.updating import difference, merged, stored_choices
from whet.engine.settings import resolve_settings
from whet.store import MemoryStore
from whet.targets.function import FunctionTarget
from whet.testing.samples import a_run, a_timing, a_trial, a_workload

ONE, TWO, THREE = Config(block=1), Config(block=2), Config(block=3)


def work(n: int, block: int) -> int:
    return block


def other_work(n: int, block: int) -> int:
    return block + 1


def target(n: int = 64, fn: Any = work, **options: Any) -> FunctionTarget:
    space = options.pop("space", {"block": [1, 2, 3]})
    return whet.function(fn, space, kwargs={"n": n}, name="work", key={"n": n}, **options)


def entry(n: int = 64, config: Config = TWO, **options: Any) -> LockEntry:
    return LockEntry.of(target(n, **options).workload(), config)


@pytest.fixture(autouse=True)
def _no_choices_yet() -> Iterator[None]:
    forget_choices()
    yield
    forget_choices()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "whet.lock"
    write_lock(path, [entry(64, TWO), entry(512, THREE)])
    return path


def test_a_file_reads_back_as_it_was_written(lock: Path) -> None:
    found = read_lock(lock)
    assert found.entries == [entry(64, TWO), entry(512, THREE)]
    assert lock_text(found.entries) == lock.read_text()


def test_entries_stand_in_one_order_with_numbers_as_numbers() -> None:
    some = [entry(n) for n in (1024, 64, 512)]
    assert lock_text(some) == lock_text(some[::-1])
    keys = re.findall(r'^\{"n": (\d+)\}', lock_text(some), re.MULTILINE)
    assert keys == ["64", "512", "1024"]


def test_values_of_every_kind_come_back(tmp_path: Path) -> None:
    key = {"T": (1, 2.5), "x.dtype": "torch.float16", "é\n": None, "flag": True}
    workload = a_workload(kernel='odd "name"', key=key)
    made = LockEntry.of(workload, Config(order=(0, 1), fast=False, name="a -> b {"))
    write_lock(tmp_path / "odd.lock", [made])
    assert read_lock(tmp_path / "odd.lock").entries == [made]


def test_a_line_that_was_changed_by_hand_is_refused_until_it_is_accepted(lock: Path) -> None:
    lock.write_text(lock.read_text().replace('{"block": 3}', '{"block": 1}'))
    with pytest.raises(LockError, match=r"whet.lock:10: the digest of work\(n=512\).*--accept"):
        read_lock(lock)
    assert read_lock(lock, accept=True).entries == [entry(64, TWO), entry(512, ONE)]


def test_a_line_under_another_kernel_is_refused(lock: Path) -> None:
    lock.write_text(lock.read_text().replace("kernel work", "kernel play"))
    with pytest.raises(LockError, match="changed or moved"):
        read_lock(lock)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no lock file"),
        ("whet-lock 2\n", "has another version"),
        ("whet-lock 1\n{} -> {} 00\n", "no 'kernel' line"),
        ("whet-lock 1\nkernle x\n", "did you mean 'kernel'"),
        ("whet-lock 1\n<<<<<<< ours\n", "unresolved merge conflict"),
        ("whet-lock 1\nkernel k\ndevice 3\nsource s\ntools {}\n{} -> {} 00\n", "needs a name"),
        ("whet-lock 1\nkernel k\ndevice {}\nsource s\ntools {}\n{ -> {} 00\n", "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "bad.lock"
    path.write_text(text)
    with pytest.raises(LockError, match=why):
        read_lock(path)


def test_two_lines_that_disagree_are_refused(lock: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.lock"
    write_lock(other, [entry(64, ONE)])
    lock.write_text(lock.read_text() + other.read_text().partition("\n")[2])
    with pytest.raises(LockError, match=r"disagrees with line 9 about work\(n=64\)"):
        read_lock(lock)


class TestChoosing:
    def test_an_entry_is_the_choice_whatever_the_store_says(self, lock: Path) -> None:
        store = MemoryStore()
        workload = target().workload()
        store.put_workload(workload)
        store.append([a_trial(workload, ONE, timing=a_timing(1.0, timer="cpu"))])
        found = choose(target(lock=lock), store=store, mode="cached")
        assert (found.config, found.source) == (TWO, "exact")
        assert choose(target(lock=lock), store=store, mode="record").config == ONE

    def test_the_setting_holds_for_every_kernel(
        self, lock: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WHET_LOCK", str(lock))
        assert resolve_settings().settings.lock == str(lock)
        assert choose(target(), mode="require").config == TWO

    def test_a_key_that_is_not_in_it_takes_the_nearest_entry_and_is_listed(
        self, lock: Path
    ) -> None:
        found = choose(target(256, lock=lock), mode="cached")
        assert (found.config, found.source) == (THREE, "nearest")
        [listed] = unlocked()
        assert listed.workload.key == {"n": 256}
        assert "n=512 (1.0 doublings away)" in listed.reason

    def test_of_two_as_near_the_choice_does_not_depend_on_the_order(self, tmp_path: Path) -> None:
        entries = [entry(128, TWO), entry(512, THREE)]
        for name, some in (("one.lock", entries), ("two.lock", entries[::-1])):
            write_lock(tmp_path / name, some)
            assert choose(target(256, lock=tmp_path / name), mode="cached").config == TWO

    def test_require_refuses_it_and_says_what_to_type(self, lock: Path) -> None:
        with pytest.raises(NotTunedError, match=r"work\(n=256\).*whet lock update"):
            choose(target(256, lock=lock), mode="require")

    def test_another_source_is_not_used_and_listed(self, lock: Path) -> None:
        found = choose(target(fn=other_work, lock=lock), mode="cached")
        assert (found.config, found.source) == (ONE, "first")
        assert "another source" in unlocked()[0].reason

    def test_another_device_is_not_used_and_listed(self, tmp_path: Path) -> None:
        here = target().workload()
        there = Workload(
            here.kernel, here.fingerprint, Device("Other", "cpu", "x"), here.key, here.toolchain
        )
        write_lock(tmp_path / "there.lock", [LockEntry.of(there, TWO)])
        found = choose(target(lock=tmp_path / "there.lock"), mode="cached")
        assert found.source == "first"
        assert "another device (Other)" in unlocked()[0].reason

    def test_another_toolchain_is_used_with_a_warning(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        here = target().workload()
        older = Workload(
            here.kernel, here.fingerprint, here.device, here.key, a_workload().toolchain
        )
        write_lock(tmp_path / "old.lock", [LockEntry.of(older, TWO)])
        for _ in range(2):
            assert choose(target(lock=tmp_path / "old.lock"), mode="cached").source == "exact"
        said = capfd.readouterr().err
        assert said.count("with cc gcc 12.2.0") == 1
        assert unlocked() == ()

    def test_a_config_that_the_kernel_no_longer_has_is_not_used(self, lock: Path) -> None:
        found = choose(target(512, space={"block": [1, 2]}, lock=lock), mode="cached")
        assert found.config == TWO  # of the nearest entry that the kernel has
        assert "kernel's any more" in found.reason

    def test_a_lock_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(LockError, match="whet lock update"):
            choose(target(lock=tmp_path / "none.lock"), mode="cached")

    def test_tune_returns_what_is_locked_and_runs_nothing(self, lock: Path) -> None:
        result = whet.tune(target(lock=lock), mode="cached", store=":memory:")
        assert (result.config, result.trials, result.source) == (TWO, (), "stored")
        with pytest.raises(NotTunedError, match="not in lock file"):
            whet.tune(target(256, lock=lock), mode="cached", store=":memory:")

    @pytest.mark.medium
    def test_nothing_is_random_in_another_process(self, lock: Path, tmp_path: Path) -> None:
        """Sets of names have another order in every process."""
        wide = {f"size_{number}": 3 + number for number in range(9)}
        near = {name: size * 3 for name, size in wide.items()}
        asked = a_workload(key=wide)
        some = [
            LockEntry.of(a_workload(key={**near, f"size_{at}": near[f"size_{at}"] + 1}), TWO)
            for at in range(9)
        ]
        write_lock(tmp_path / "wide.lock", some)
        code = (
            "import sys; from whet.engine.lockfile.entries import read_lock\n"
            "from whet.engine.lockfile.choosing import _nearest\n"
            "from whet.testing.samples import a_workload\n"
            f"away, one = _nearest(read_lock({str(tmp_path / 'wide.lock')!r}), "
            f"a_workload(key={dict(asked.key)!r}), lambda config: True)\n"
            "print(away.hex(), one.id)"
        )
        said = {
            subprocess.run(
                [sys.executable, "-c", code],
                env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in (1, 2, 3)
        }
        assert len(said) == 1


OURS = {one.id: one for one in (entry(1, ONE), entry(2, TWO), entry(3, ONE))}
THEIRS = {one.id: one for one in (entry(2, TWO), entry(3, THREE), entry(4, ONE))}


class TestMerging:
    def test_what_only_one_has_is_taken_and_what_differs_is_a_conflict(self) -> None:
        found = merged(OURS, THEIRS)
        assert found.entries == (entry(1, ONE), entry(2, TWO), entry(4, ONE))
        [conflict] = found.conflicts
        assert (conflict.ours, conflict.theirs) == (entry(3, ONE), entry(3, THREE))

    def test_a_conflict_cannot_be_read_until_a_person_has_decided(self, tmp_path: Path) -> None:
        found = merged(OURS, THEIRS)
        path = tmp_path / "both.lock"
        write_lock(path, found.entries, found.conflicts, "ours", "theirs")
        with pytest.raises(LockError, match="unresolved merge conflict"):
            read_lock(path)
        text = path.read_text()
        kept = re.sub(r"<<<<<<< ours\n(.*?)=======\n.*?>>>>>>> theirs\n", r"\1", text, flags=re.S)
        path.write_text(kept)
        assert read_lock(path).entries == [entry(n, c) for n, c in ((1, ONE), (2, TWO))] + [
            entry(3, ONE),
            entry(4, ONE),
        ]

    def test_with_a_base_what_one_side_changed_or_removed_is_taken(self) -> None:
        base = {one.id: one for one in (entry(2, TWO), entry(3, ONE), entry(5, TWO))}
        found = merged(OURS, {**THEIRS, entry(5).id: entry(5, TWO)}, base)
        assert found.conflicts == ()
        assert {one.key["n"]: one.config for one in found.entries} == {
            1: ONE,
            2: TWO,
            3: THREE,
            4: ONE,
        }

    def test_removed_here_and_changed_there_is_a_conflict(self) -> None:
        base = {entry(9, ONE).id: entry(9, ONE)}
        found = merged({}, {entry(9).id: entry(9, THREE)}, base)
        [conflict] = found.conflicts
        assert (conflict.ours, conflict.theirs) == (None, entry(9, THREE))

    def test_a_difference_is_told_in_the_order_of_the_file(self) -> None:
        found = difference(OURS, THEIRS)
        assert found.added == (entry(4, ONE),)
        assert found.removed == (entry(1, ONE),)
        assert found.changed == ((entry(3, ONE), entry(3, THREE)),)


def test_of_results_that_differ_in_tools_only_the_newest_is_locked() -> None:
    store = MemoryStore()
    for version, config, at in (("1", ONE, 10.0), ("2", TWO, 20.0)):
        workload = a_workload(toolchain={"triton": version})
        store.put_workload(workload)
        store.append([a_trial(workload, config, created=at)])
        store.save_run(a_run(workload, config, started=at))
    found = stored_choices(store, store.workloads())
    assert [one.config for one in found.by_id.values()] == [TWO]


def test_a_pick_that_no_run_has_confirmed_is_locked_and_named() -> None:
    store, workload = MemoryStore(), a_workload()
    store.put_workload(workload)
    store.append([a_trial(workload, ONE)])
    store.save_run(replace(a_run(workload, ONE, started=1.0), provisional=True))
    [named] = stored_choices(store, store.workloads()).provisional
    assert named.config == ONE
    store.save_run(a_run(workload, ONE, started=2.0))
    assert stored_choices(store, store.workloads()).provisional == ()


class TestDigest:
    def test_it_depends_on_the_choices_and_not_on_their_order(self, lock: Path) -> None:
        seen = []
        for sizes in ((64, 512), (512, 64)):
            forget_choices()
            for n in sizes:
                choose(target(n, lock=lock), mode="cached")
            seen.append(whet.digest())
        assert seen[0] == seen[1]
        choose(target(64), mode="off")
        assert whet.digest() != seen[0]

    def test_a_tuned_choice_counts(self) -> None:
        before = whet.digest()
        whet.tune(target(isolate=False), store=":memory:", budget="3trials")
        assert whet.digest() != before

    def test_a_difference_names_the_kernel_and_the_ranks(self) -> None:
        tables = {
            rank: {"a": ("matmul(M=1) on H200", "{1}" if rank != 2 else "{2}")} for rank in range(4)
        }
        with pytest.raises(whet.RanksDifferError) as error:
            choosing._refuse_differences(tables, "the choices in force")
        assert "matmul(M=1) on H200 (ranks 0, 1, 3: {1}; rank 2: {2})" in str(error.value)

    def test_a_rank_that_has_called_less_does_not_differ(self) -> None:
        tables = {0: {"a": ("k", "{1}"), "b": ("l", "{1}")}, 1: {"a": ("k", "{1}")}}
        choosing._refuse_differences(tables, "the choices in force")
        with pytest.raises(whet.RanksDifferError, match="rank 1: no entry"):
            choosing._refuse_differences(tables, "lock file whet.lock", whole=True)
