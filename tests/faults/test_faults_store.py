"""A store that many write to, whose clock jumps, whose folder or disk is not as it should be."""

from __future__ import annotations

import errno
import itertools
import json
import os
import resource
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import faults_full_disk
import pytest
from faults_full_disk import told, tune
from faults_processes import count

import whet
from whet.cli import main
from whet.core.errors import StoreError
from whet.core.run import Result
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store import MemoryStore, SqliteStore, Store, open_store
from whet.store.faults import store_error
from whet.testing.samples import a_run, a_trial, a_workload
from whet.testing.store_kit_base import die_if_stuck, in_child, refusal

WRITERS = 16
TRIALS = count(60, 1000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def workload(path: Path) -> Workload:
    workload = a_workload()
    with SqliteStore(path) as store:
        store.put_workload(workload)
    return workload


def fork(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_if_stuck(110)
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as db:
        return str(db.execute("PRAGMA integrity_check").fetchone()[0])


@pytest.mark.slow
def test_many_writers_lose_and_double_nothing_and_readers_go_on(
    path: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    def append_all(writer: int) -> None:
        with SqliteStore(path) as store:
            for n in range(TRIALS):
                config, id = {"writer": writer, "n": n}, f"{writer}-{n}"
                median = 1000.0 + (7 * n + 13 * writer) % 977
                store.append([a_trial(workload, config, id=id, median_ns=median)])

    running = {fork(partial(append_all, writer)) for writer in range(WRITERS)}
    codes, asked, slowest = [], 0, 0.0
    lowest = float("inf")
    with SqliteStore(path, read_only=True) as reader:
        while running:
            start = time.perf_counter()
            best = reader.best(workload.id)
            slowest, asked = max(slowest, time.perf_counter() - start), asked + 1
            if best is not None and best.median_ns is not None:
                assert best.median_ns <= lowest
                lowest = best.median_ns
            time.sleep(0.002)
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in running:
                running.discard(pid)
                codes.append(status)
    with capsys.disabled():
        print(f" [best: slowest of {asked:,} {1e3 * slowest:.1f} ms]", end="")
    assert codes == [0] * WRITERS
    with SqliteStore(path) as store:
        ids = [trial.id for trial in store.trials(workload.id, all=True)]
        assert len(store.trials(workload.id)) == WRITERS * TRIALS
    assert sorted(ids) == sorted(f"{w}-{n}" for w in range(WRITERS) for n in range(TRIALS))
    assert integrity(path) == "ok"


@pytest.mark.medium
def test_a_stopped_process_that_holds_the_lock_keeps_writers_waiting_and_nobody_else(
    path: Path, workload: Workload
) -> None:
    (reading, writing), (may, let) = os.pipe(), os.pipe()

    def write_slowly() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("UPDATE workloads SET active = 5")
            os.write(writing, b"x")
            os.read(may, 1)
            db.execute("COMMIT")

    pid = fork(write_slowly)
    os.read(reading, 1)
    os.kill(pid, signal.SIGSTOP)
    try:
        with SqliteStore(path, busy_s=0.05) as store:
            told = refusal(lambda: store.append([a_trial(workload)]), StoreError)
            assert "is locked" in told
            assert store.trials(workload.id) == []
    finally:
        os.kill(pid, signal.SIGCONT)
        os.write(let, b"x")
    assert os.waitpid(pid, 0)[1] == 0
    with SqliteStore(path) as store:
        assert store.append([a_trial(workload)]) == 1
    for end in (reading, writing):
        os.close(end)


YEAR = 365 * 86400.0
NOW = 1_800_000_000.0


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return SqliteStore(tmp_path / "store.db") if request.param == "file" else MemoryStore()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`clock(NOW, 0.0)`: the wall clock then reads this, and that, and again from the first."""

    def set_to(*readings: float) -> None:
        endless = itertools.cycle(readings)
        monkeypatch.setattr(time, "time", lambda: next(endless))

    return set_to


def summed(n: int) -> int:
    return sum(range(n))


def tuned(store: Store, *values: int) -> Result:
    target = whet.function(summed, {"n": list(values)}, isolate=False)
    return whet.tune(target, store=store, jobs=1, seed=1)


@pytest.mark.parametrize("second", [NOW - 30 * YEAR, 0.0, NOW + 9 * YEAR])
@pytest.mark.parametrize("first", [NOW, NOW + 9 * YEAR, 0.0])
def test_the_run_that_came_last_is_the_newest_whatever_its_clock_said(
    store: Store, clock: Callable[..., None], first: float, second: float
) -> None:
    clock(first)
    before = tuned(store, 3000, 4000)
    clock(second)
    after = tuned(store, 10, 3000, 4000)
    workload_id = after.run.workload.id
    assert [run.id for run in store.runs(workload_id)] == [after.run.id, before.run.id]
    best = store.best(workload_id)
    assert best is not None
    assert best.config == after.config
    assert after.config["n"] == 10


def test_a_run_is_answered_by_the_store_after_the_clock_was_set_back(
    store: Store, clock: Callable[..., None]
) -> None:
    clock(NOW)
    tuned(store, 10, 3000)
    clock(NOW - 20 * YEAR)
    assert tuned(store, 10, 3000).source == "stored"


@pytest.mark.parametrize("jump", [-20 * YEAR, 20 * YEAR])
def test_no_duration_is_negative_or_years_long_when_the_clock_jumps_during_a_run(
    store: Store, clock: Callable[..., None], jump: float
) -> None:
    clock(NOW, NOW + jump)
    start = time.perf_counter()
    result = tuned(store, 10, 2000, 3000, 4000)
    spent = time.perf_counter() - start
    seconds = [result.run.wall_s, *result.run.cost.wall.values(), *result.run.cost.work.values()]
    for trial in result.trials:
        seconds += trial.cost.work.values()
    timeline = store.timeline(result.run.id)
    assert timeline is not None
    seconds += [span.seconds for span in timeline.spans]
    seconds += [span.start_s for span in timeline.spans]
    assert all(0.0 <= one <= spent for one in seconds)
    assert max(span.end_s for span in timeline.spans) <= result.run.wall_s


def test_the_trial_appended_last_is_the_latest_whatever_its_clock_said(store: Store) -> None:
    workload = a_workload()
    store.put_workload(workload)
    ahead = a_trial(workload, {"BM": 1}, median_ns=5.0, created=NOW + 10 * YEAR)
    behind = a_trial(workload, {"BM": 1}, median_ns=9.0, created=0.0)
    store.append([ahead])
    store.append([behind])
    assert store.trials(workload.id) == [behind]
    assert store.best(workload.id) == behind
    assert store.latest(workload.id, behind.config.id) == behind
    assert store.trials(workload.id, all=True) == [ahead, behind]


@pytest.mark.parametrize("ahead", [NOW + 10 * YEAR, NOW])
def test_gc_by_age_keeps_what_is_young_beside_moments_that_have_not_come(
    store: Store, ahead: float
) -> None:
    young, future, old = (a_workload(key={"M": m}) for m in (1, 2, 3))
    for workload, created in ((young, NOW - 60), (future, ahead), (old, NOW - 2 * YEAR)):
        store.put_workload(workload)
        store.append([a_trial(workload, created=created)])
    store.save_run(a_run(future, {"BM": 64}, started=ahead))
    store.gc(older_than_s=YEAR)
    assert {summary.workload for summary in store.workloads()} == {young, future}


def test_gc_by_age_removes_nothing_that_a_clock_behind_calls_future(
    store: Store, clock: Callable[..., None]
) -> None:
    workload = a_workload()
    store.put_workload(workload)
    store.append([a_trial(workload, created=NOW)])
    clock(NOW - 30 * YEAR)
    assert store.gc(older_than_s=0).workloads == 0


NOBODY = 65534


def fill(path: Path) -> Workload:
    workload = a_workload()
    with SqliteStore(path) as store:
        store.put_workload(workload)
        store.append([a_trial(workload)])
    return workload


def unprivileged(check: Callable[[], bool]) -> bool:
    """What `check` says to a process that is not the superuser's, who may write anything."""

    def give_up_privilege_and_check() -> bool:
        if os.getuid() == 0:
            os.setresuid(NOBODY, NOBODY, NOBODY)
        return check()

    return in_child(give_up_privilege_and_check)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that another user can enter, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)
        os.chmod(name, 0o755)


def test_a_folder_that_may_not_be_made_is_said(folder: Path) -> None:
    folder.chmod(0o555)
    path = folder / "a" / "b" / "store.db"

    def says_so() -> bool:
        told = refusal(lambda: open_store(path))
        return str(path) in told and "Permission denied" in told and "store=…" in told

    assert unprivileged(says_so)
    assert not (folder / "a").exists()


@pytest.mark.medium
def test_a_folder_that_may_not_be_entered_is_said(folder: Path) -> None:
    path = folder / "store.db"
    fill(path)
    folder.chmod(0o000)
    assert unprivileged(lambda: "store=…" in refusal(lambda: open_store(path)))
    assert unprivileged(lambda: "store=…" in refusal(lambda: open_store(path, read_only=True)))


TINY = """
import whet

tiny = whet.function(lambda n: n, {"n": [1, 2]}, name="tiny", isolate=False)
"""


@pytest.mark.parametrize("command", ["tune", "best tiny", "store stats", "store gc", "store merge"])
@pytest.mark.parametrize("place", ["/proc/none/store.db", "file/store.db", "loop/store.db"])
def test_a_command_whose_store_cannot_be_ends_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, place: str
) -> None:
    """Nobody can make a folder in /proc, below a file or in a link to itself, not even root."""
    (tmp_path / "file").write_text(TINY)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "kernel.py").write_text(TINY)
    more = {
        "tune": ["--quiet", str(tmp_path / "kernel.py")],
        "store gc": ["--older-than", "1d"],
        "store merge": [str(tmp_path / "other.db")],
    }
    open_store(tmp_path / "other.db").close()
    words = [*command.split(), *more.get(command, [])]
    assert main([*words, "--store", str(tmp_path / place)]) in (0, 1, 2)
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert "a bug" not in said.err
    assert said.err.count("\n") <= 1


def test_a_link_to_a_store_is_the_store(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "store.db", tmp_path / "link.db"
    real.parent.mkdir()
    workload = fill(real)
    link.symlink_to(real)
    with open_store(link) as by_link, open_store(real) as by_name:
        by_link.append([a_trial(workload, {"BM": 2})])
        by_name.append([a_trial(workload, {"BM": 3})])
        assert len(by_link.trials(workload.id)) == len(by_name.trials(workload.id)) == 3
    assert sorted(os.listdir(tmp_path)) == ["link.db", "real"]


@pytest.mark.medium
def test_results_in_the_log_of_a_linked_store_are_not_passed_over(folder: Path) -> None:
    real, link = folder / "real" / "store.db", folder / "store.db"
    real.parent.mkdir()
    workload = fill(real)

    def append_and_leave_the_log() -> bool:
        SqliteStore(real).append([a_trial(workload, {"BM": 2})])
        os._exit(0)

    assert in_child(append_and_leave_the_log)
    (real.parent / "store.db-shm").unlink()
    link.symlink_to(real)
    real.parent.chmod(0o555)
    assert unprivileged(lambda: "store.db-wal" in refusal(lambda: SqliteStore(link)))


def test_a_link_that_leads_to_itself_is_said(tmp_path: Path) -> None:
    link = tmp_path / "store.db"
    link.symlink_to(link)
    with pytest.raises(StoreError, match="store=…"):
        open_store(link)


def remove(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def replace_by_another(folder: Path) -> None:
    remove(folder)

    def make_another() -> bool:
        return fill(folder / "store.db") is not None

    assert in_child(make_another)


@pytest.mark.parametrize("fate", [remove, replace_by_another, shutil.rmtree])
def test_nothing_is_written_to_a_store_that_is_gone(
    tmp_path: Path, fate: Callable[[Path], None]
) -> None:
    """SQLite would take it, into a file that nobody can open any more."""
    path = tmp_path / "stores" / "store.db"
    path.parent.mkdir()
    workload = fill(path)
    store = SqliteStore(path)
    store.append([a_trial(workload, {"BM": 2})])
    fate(path.parent)
    with pytest.raises(StoreError, match=r"was removed or replaced while in use"):
        store.append([a_trial(workload, {"BM": 3})])
    store.close()


def test_who_closes_a_store_that_is_gone_leaves_the_new_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    workload = fill(path)
    store = SqliteStore(path)
    store.append([a_trial(workload, {"BM": 2})])
    remove(tmp_path)

    def make_another_and_leave_its_log() -> bool:
        other = SqliteStore(path)
        other.put_workload(workload)
        other.append(a_trial(workload, {"BM": n}) for n in range(7))
        os._exit(0)

    assert in_child(make_another_and_leave_its_log)
    store.close()
    with SqliteStore(path) as again:
        assert len(again.trials(workload.id)) == 7


def test_a_tuning_whose_store_is_removed_ends_with_the_best_so_far(tmp_path: Path) -> None:
    path = tmp_path / "stores" / "store.db"

    def work(n: int) -> int:
        if n == 60 and path.parent.exists():
            shutil.rmtree(path.parent)
        return sum(range(n))

    target = whet.function(work, {"n": [10, 20, 30, 40, 50, 60]}, isolate=False)
    with pytest.raises(whet.StoreLostError, match="was removed or replaced") as caught:
        whet.tune(target, store=path, search="grid", jobs=1)
    assert caught.value.result is not None


def test_a_child_makes_no_store_in_place_of_one_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    workload = fill(path)
    with SqliteStore(path) as store:
        remove(tmp_path)
        assert in_child(lambda: "was removed" in refusal(lambda: store.trials(workload.id)))
    assert not path.exists()


# The store has 100 kB before the first trial, and its log grows by 10 to 30 kB a commit.
FULL_ROOM = 350_000


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
        [*small_disk, *script, str(FULL_ROOM)], capture_output=True, text=True, check=False
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
        resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_ROOM, FULL_ROOM))

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
