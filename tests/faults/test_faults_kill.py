"""kill -9 at random moments: of the tuner, and of the workers it has."""

from __future__ import annotations

import fcntl
import json
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from faults_kernel import BEST, PATIENT, SharedBuilds, healthy, kernel, poisoned, turned_into
from faults_processes import alive, check_nothing_left, children, count, left_of
from faults_tuner import CHEAP_POISONS, target

import whet
from whet.builds.job import Job
from whet.core.config import Config
from whet.core.event import BuildFinished, BuildStarted, Event, Measured
from whet.engine.steps.samples import Sampler
from whet.engine.target import BenchLimits
from whet.measure.bench.protocol import Bench
from whet.measure.bench.remote import RemoteBench

HERE = Path(__file__).parent
TUNER_KILLS = count(2, 5)
WORKER_KILLS = count(4, 20)

# Of its first two tuners one is killed before it has begun to tune.
FIRST_BLOCK = 1


def trials(store: Path) -> dict[str, str]:
    """Ids of all committed trials with those of their configs, from a database that is whole."""
    if not store.exists():
        return {}
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=10)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'trials'").fetchone():
            return {}
        return dict(db.execute("SELECT id, config_id FROM trials"))


def locks_held(store: Path) -> list[str]:
    held = []
    for path in (store.parent / "locks").glob("*"):
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.append(path.name)
    return held


def start_tuner(kind: str, store: Path) -> subprocess.Popen[str]:
    paths = [str(HERE), str(Path(whet.__file__).parents[1])]
    return subprocess.Popen(
        [sys.executable, str(HERE / "faults_tuner.py"), kind, str(store)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        text=True,
    )


def killed_at_random(tuner: subprocess.Popen[str], store: Path, dice: random.Random) -> bool:
    """False when it was quicker. One in four is killed before it has begun to tune."""
    assert tuner.stdout is not None
    if dice.random() < 0.25:
        time.sleep(dice.uniform(0.0, 0.5))
    else:
        tuner.stdout.readline()
        time.sleep(dice.uniform(0.0, 1.0))
    committed = trials(store)
    tuner.kill()
    tuner.communicate()
    assert committed.items() <= trials(store).items()
    return tuner.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["native", pytest.param("function", marks=pytest.mark.whole)])
@pytest.mark.parametrize("block", range(FIRST_BLOCK, FIRST_BLOCK + count(1, 20)))
def test_a_killed_tuner_loses_nothing_and_the_next_goes_on_at_once(
    kind: str, block: int, tmp_path: Path, scratch: Path
) -> None:
    dice = random.Random(block)
    store = tmp_path / "store.db"
    kills = finished = 0
    while kills < TUNER_KILLS:
        if killed_at_random(start_tuner(kind, store), store, dice):
            kills += 1
        else:
            finished += 1
            store = tmp_path / f"store{finished}.db"
        check_nothing_left(scratch)
        assert locks_held(store) == []
    known = set(trials(store).values())
    last = start_tuner(kind, store)
    words, _ = last.communicate(timeout=300)
    answer = json.loads(words.splitlines()[-1])
    assert Config(answer["config"]) == target(kind)[1]
    assert answer["known"] == len(known)
    assert len(set(trials(store).values())) == target(kind)[0].space.count
    assert left_of(scratch) == ""


@dataclass(frozen=True)
class Watched(SharedBuilds):
    """Remembers its bench, so that a killer can tell the process that measures from builders."""

    benches: list[RemoteBench] = field(default_factory=list, compare=False)

    def bench(self, limits: BenchLimits) -> Bench:
        bench = super().bench(limits)
        assert isinstance(bench, RemoteBench)
        self.benches.append(bench)
        return bench

    def job(self, config: Config) -> Job | None:
        """Built anew in every run."""
        return super(SharedBuilds, self).job(config)

    @property
    def measuring(self) -> int | None:
        worker = self.benches[-1]._session._seat.worker if self.benches else None
        return None if worker is None else worker.pid


# So long after a build began its event may come.
UNHEARD_S = 0.5


class Killer:
    """Kills workers at random moments, but no config's twice: that would rightly be blamed on it.

    `heed` is told of every event of the run. A worker that measures is left alone until the visit
    after that in which the last was killed has ended, since a visit may end before the worker does;
    one that builds until what was being built is.
    """

    def __init__(self, dice: random.Random) -> None:
        self.built = self.measured = 0
        self._dice = dice
        self._lock = threading.Lock()
        self._building: set[Config] = set()
        self._wounded: set[Config] = set()
        self._struck = -math.inf
        self._spared_visits = 0

    def heed(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, BuildStarted):
                self._building.add(event.config)
                # On a busy machine its worker may have started before the kill, unheard of.
                if time.monotonic() - self._struck < UNHEARD_S:
                    self._wounded.add(event.config)
            elif isinstance(event, BuildFinished):
                self._building.discard(event.config)
                self._wounded.discard(event.config)
            elif isinstance(event, Measured):
                self._spared_visits = max(0, self._spared_visits - 1)

    @contextmanager
    def at_work(self, target: Watched) -> Iterator[None]:
        ended = threading.Event()
        thread = threading.Thread(target=self._kill_until, args=(ended, target))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _kill_until(self, ended: threading.Event, target: Watched) -> None:
        while not ended.wait(self._dice.uniform(0.0, 0.08)):
            with self._lock:
                measuring = target.measuring
                if self._dice.random() < 0.5:
                    if measuring is not None and not self._spared_visits and alive(measuring):
                        os.kill(measuring, signal.SIGKILL)
                        self._spared_visits = 2
                        self.measured += 1
                elif self._building and not self._wounded and not self._spared_visits:
                    builders = [pid for pid in _workers() if pid != measuring]
                    if builders:
                        with suppress(ProcessLookupError):
                            os.kill(self._dice.choice(builders), signal.SIGKILL)
                        # It may be one that stands by to measure, and has just begun.
                        self._spared_visits = 2
                        self._wounded, self._struck = set(self._building), time.monotonic()
                        self.built += 1


def _workers() -> list[int]:
    found = []
    for pid in sorted(children()):
        with suppress(OSError):
            marked = b"_WHET_WORKER=" in Path(f"/proc/{pid}/environ").read_bytes()
            if marked and alive(pid):
                found.append(pid)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("block", range(count(2, 25)))
def test_the_best_is_found_while_workers_are_killed_again_and_again(
    block: int, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where all cores are busy, a config whose worker was killed takes far longer than the quickest.
    monkeypatch.setattr(Sampler, "look_limit_s", PATIENT.run_limit_s)
    killer = Killer(random.Random(block))
    plain = kernel(healthy(16) + poisoned(CHEAP_POISONS), forked=block % 2 == 1)
    run = 0
    while killer.built + killer.measured < WORKER_KILLS:
        store = tmp_path / f"store{run}.db"
        watched = turned_into(Watched, plain)
        with killer.at_work(watched):
            result = whet.tune(
                watched,
                store=store,
                settings=replace(PATIENT, jobs=3),
                seed=run,
                on_event=killer.heed,
            )
        blamed = {t.config: t.error for t in result.trials if not t.status.measured}
        assert set(blamed) == {Config(config) for config in poisoned(CHEAP_POISONS)}, blamed
        assert result.config == BEST
        assert set(trials(store).values()) == {config.id for config in watched.space}
        check_nothing_left(scratch)
        assert locks_held(store) == []
        run += 1
