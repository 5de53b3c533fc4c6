"""kill -9 at random moments of a running `whet tune`, again and again, on one store.

    python benchmarks/kill9.py [--kills 50] [--seed 0] [--json]

After every kill: the database must open and pass its own check, every trial that was committed
before the kill must be there, and no process or folder of the killed run may be left. The next run
must go on where the last one ended: what it says it knew already must be every config that had a
trial. When a run gets to its end by itself, a fresh store is begun.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

TUNE = (sys.executable, "-m", "whet", "tune", "--quiet", "--json")

KERNEL = '''
import numpy as np
import whet

SOURCE = """
void scale(float *x, int n)
{
    for (int i = 0; i < n; i += STEP)
        for (int k = i; k < i + STEP && k < n; k++)
            x[k] = x[k] * 0.5f + STEP;
}
"""

scale = whet.native(
    SOURCE,
    {"STEP": [1, 2, 4, 8, 16, 32, 64, 128], "opt": ["-O1", "-O2", "-O3", "-Os", "-O3 -ffast-math"]},
    flags=["opt"],
    function="scale",
    args={"x": np.ones(20_000, np.float32), "n": 20_000},
)
'''


@dataclass
class Tally:
    kills: int = 0
    opened: int = 0
    committed: int = 0
    lost: int = 0
    leftovers: int = 0
    finished_runs: int = 0
    forgotten: int = 0


def rows(store: Path) -> list[tuple[str, str]]:
    """Id and config of every committed trial; raises where the database is damaged."""
    if not store.exists():
        return []
    db = sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=10)
    try:
        check = db.execute("PRAGMA quick_check").fetchone()[0]
        if check != "ok":
            raise sqlite3.DatabaseError(check)
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        if "trials" not in tables:
            return []
        return list(db.execute("SELECT id, config_id FROM trials"))
    finally:
        db.close()


def survivors(folder: Path) -> int:
    """Processes that still carry the killed run's mark, and folders they left."""
    mark = f"TMPDIR={folder}".encode()
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
            count += state != "Z" and mark in (process / "environ").read_bytes()
        except OSError:
            continue
    return count + sum(1 for _ in folder.iterdir())


def one_kill(kernel: Path, store: Path, scratch: Path, moment: float, tally: Tally) -> bool:
    """Starts a run and kills it after `moment` seconds. True when it ended before that."""
    before = {config for _, config in rows(store)}
    run = subprocess.Popen(
        [*TUNE, f"{kernel}:scale", "--store", str(store)],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        answer, said = run.communicate(timeout=moment)
    except subprocess.TimeoutExpired:
        seen = {id for id, _ in rows(store)}
        run.send_signal(signal.SIGKILL)
        run.wait()
        tally.kills += 1
        tally.committed += len(seen)
        kept = rows(store)
        tally.opened += 1
        tally.lost += len(seen - {id for id, _ in kept})
        deadline = time.monotonic() + 5
        while survivors(scratch) and time.monotonic() < deadline:
            time.sleep(0.05)
        tally.leftovers += survivors(scratch)
        return False
    if run.returncode:
        sys.exit(f"whet tune failed: {said}")
    tally.finished_runs += 1
    tally.forgotten += len(before) - json.loads(answer)["known"]
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        kernel = Path(folder) / "kernel.py"
        kernel.write_text(KERNEL)
        generation = 0
        while tally.kills < asked.kills:
            store = Path(folder) / f"store{generation}.db"
            scratch = Path(folder) / "scratch"
            scratch.mkdir(exist_ok=True)
            if one_kill(kernel, store, scratch, rng.uniform(0.05, 3.0), tally):
                generation += 1
    if asked.json:
        print(json.dumps(asdict(tally)))
    else:
        for name, count in asdict(tally).items():
            print(f"{name:14}{count:6}")
    sys.exit(
        1 if tally.lost or tally.leftovers or tally.forgotten or tally.opened < tally.kills else 0
    )


if __name__ == "__main__":
    main()
