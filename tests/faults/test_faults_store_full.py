"""The disk is full while a kernel is tuned."""

from __future__ import annotations

import errno
import json
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import faults_full_disk
import pytest
from faults_full_disk import told, tune

import whet
from whet.core.errors import StoreError
from whet.core.trial import Trial
from whet.store import MemoryStore
from whet.store.faults import store_error

# The store has 100 kB before the first trial, and its log grows by 10 to 30 kB a commit.
ROOM = 350_000


@pytest.fixture
def small_disk(tmp_path: Path) -> list[str]:
    """A command in front of another one, which then has a disk of 8 MB at `tmp_path/disk`."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=8m none {shlex.quote(str(disk))}"
    front = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    try:
        subprocess.run([*front, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no disk can be mounted here")
    return front


def check_the_end(first: dict[str, Any]) -> None:
    """One line and an exit code for the error, the best so far for the user, the store whole."""
    assert first["code"] == StoreError.exit_code
    assert first["said"].count("\n") == 1
    assert "store.db" in first["said"]
    assert "--store" in first["said"]
    assert first["result"]["outcome"] == "interrupted"
    assert first["result"]["best"]["median_ns"] > 0
    assert first["check"] == "ok"
    assert 0 < len(first["trials"]) < 144


def check_the_next(first: dict[str, Any], second: dict[str, Any]) -> None:
    """It knows what was stored and finishes."""
    assert second["code"] == 0
    assert second["check"] == "ok"
    assert second["trials"][: len(first["trials"])] == first["trials"]
    assert second["result"]["known"] > 0
    assert second["result"]["outcome"] == "finished"


@pytest.mark.slow
def test_a_full_disk_ends_a_tuning_with_its_best_and_the_next_one_goes_on(
    small_disk: list[str], tmp_path: Path
) -> None:
    script = [sys.executable, faults_full_disk.__file__, str(tmp_path / "disk"), str(tmp_path)]
    done = subprocess.run(
        [*small_disk, *script, str(ROOM)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    check_the_end(first)
    assert "full disk" in first["said"]
    assert "some space" in first["said"]
    check_the_next(first, second)


@pytest.mark.slow
def test_a_limit_on_the_size_of_files_ends_it_likewise(tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))

    store = tmp_path / "store.db"
    first = told(tune(tmp_path, store, preexec_fn=limited), store)
    check_the_end(first)
    check_the_next(first, told(tune(tmp_path, store), store))


@pytest.mark.medium
def test_a_store_cannot_be_made_on_a_full_disk_and_says_so(
    small_disk: list[str], tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    command = f"from whet import open_store; open_store({str(disk / 'store.db')!r})"
    fill = f'head -c 8M /dev/zero > {shlex.quote(str(disk / "ballast"))}; exec "$@"'
    done = subprocess.run(
        [*small_disk, "sh", "-c", fill, "sh", sys.executable, "-c", command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "StoreError: " in done.stderr
    assert "full disk" in done.stderr


NEW_STORES = """
import os, sys
from pathlib import Path
from whet import open_store
from whet.core.errors import StoreError

disk = Path(sys.argv[1])
store, ballast = disk / "store.db", disk / "ballast"
for room in range(60_000, 200_000, 10_000):
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    ballast.write_bytes(bytes(free - room))
    try:
        open_store(store).close()
    except StoreError as error:
        assert "is on a full disk" in str(error), (room, error)
    ballast.unlink()
    open_store(store).close()
    for file in disk.iterdir():
        file.unlink()
"""


@pytest.mark.medium
def test_a_new_store_with_too_little_room_is_whole_once_there_is_more(
    small_disk: list[str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [*small_disk, sys.executable, "-c", NEW_STORES, str(tmp_path / "disk")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


class Leaking(MemoryStore):
    """Takes so many trials and then no more."""

    room = 5

    def append(self, trials: Any) -> int:
        batch: list[Trial] = list(trials)
        self.room -= len(batch)
        if self.room < 0:
            raise StoreError("store x is on a full disk; free some space")
        return super().append(batch)


def test_from_python_the_error_has_the_result_so_far_with_what_could_not_be_stored() -> None:
    def work(n: int) -> int:
        return sum(range(n))

    target = whet.function(work, {"n": [10, 20, 30, 40, 50, 60, 70, 80]}, isolate=False)
    store = Leaking()
    with pytest.raises(whet.StoreLostError, match=r"on a full disk.*continues from them") as caught:
        whet.tune(target, store=store, jobs=1)
    result = caught.value.result
    assert result is not None
    assert result.interrupted
    assert result.best.median_ns == min(
        trial.median_ns for trial in result.trials if trial.median_ns and trial.status == "ok"
    )
    # What came last is a config's first row or, once it has lost, its second.
    kept = {trial.id for trial in store.trials(target.workload().id)}
    assert {trial.id for trial in result.trials} - kept


def test_a_store_that_is_lost_before_anything_works_leaves_no_result() -> None:
    store = Leaking()
    store.room = 0
    target = whet.function(_fails, {"n": [1, 2]}, isolate=False)
    with pytest.raises(whet.StoreLostError) as caught:
        whet.tune(target, store=store, jobs=1)
    assert caught.value.result is None


def _fails(n: int) -> None:
    raise ValueError(n)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_quota_or_a_limit_is_said_as_a_full_disk_is(tmp_path: Path, number: int) -> None:
    message = str(store_error(tmp_path / "store.db", OSError(number, os.strerror(number))))
    assert f"full disk ({os.strerror(number)}); free" in message
