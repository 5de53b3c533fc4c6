"""A tuner in miniature, run as a script by the tests that kill it.

orphanage.py MODE FOLDER    opens a pool and a session and hangs with children in both
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import worker_tasks as tasks

from whet.workers.pool import open_pool
from whet.workers.session import Session
from whet.workers.task import Task


def main(mode: str, folder: Path) -> None:
    for name in ("pool", "session"):
        (folder / name).mkdir()
    with open_pool(2, mode) as pool, Session(tasks.Counter, mode) as session:
        pool.submit(Task(tasks.hang_with_children, (folder / "pool",)))
        reached = threading.Thread(target=_announce, args=(folder,), daemon=True)
        reached.start()
        session.call("run", tasks.hang_with_children, folder / "session")


def _announce(folder: Path) -> None:
    for name in ("pool", "session"):
        tasks.wait_for(folder / name / "self.pid")
    print("hanging", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
