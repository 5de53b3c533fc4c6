"""Tunes in a folder that is too small, makes room, tunes again; tells as JSON what came of it.

    python faults_full_disk.py DISK FOLDER ROOM

Of DISK, which is one of its own, ROOM bytes are left free; FOLDER is for all but the store.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

KERNEL = """
import whet

def spin(n, m):
    for _ in range(n * m):
        pass

spin = whet.function(spin, {"n": list(range(100, 1300, 100)), "m": list(range(1, 13))})
"""


def tune(folder: Path, store: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """`whet tune`, with its kernel and its scratch files in `folder`."""
    kernel = folder / "kernel.py"
    kernel.write_text(KERNEL)
    command = [sys.executable, "-m", "whet", "tune", f"{kernel}:spin", "--json", "--quiet"]
    return subprocess.run(
        [*command, "--store", str(store)],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def stored(store: Path) -> tuple[str, list[str]]:
    """What SQLite says of the file, and the trials in it."""
    with closing(sqlite3.connect(store)) as db:
        check = db.execute("PRAGMA integrity_check").fetchone()[0]
        return check, [row[0] for row in db.execute("SELECT id FROM trials ORDER BY n")]


def told(done: subprocess.CompletedProcess[str], store: Path) -> dict[str, Any]:
    check, trials = stored(store)
    return {
        "code": done.returncode,
        "said": done.stderr,
        "result": json.loads(done.stdout or "null"),
        "check": check,
        "trials": trials,
    }


def main() -> None:
    disk, elsewhere, room = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    store, ballast = disk / "store.db", disk / "ballast"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    ballast.write_bytes(bytes(free - room))
    first = told(tune(elsewhere, store), store)
    ballast.unlink()
    print(json.dumps([first, told(tune(elsewhere, store), store)]))


if __name__ == "__main__":
    main()
