"""Tasks that a worker can import, and ways to look at processes from outside."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whet.core.errors import ConfigFailure
from whet.core.status import Limit, Status
from whet.workers.pool import Pool
from whet.workers.stages import stage
from whet.workers.task import Task, TaskOutcome

FOREVER = 600


def run(pool: Pool, *tasks: Task) -> list[TaskOutcome]:
    """Outcomes in the order of the tasks."""
    tickets = [pool.submit(task) for task in tasks]
    outcomes: dict[int, TaskOutcome] = {}
    while pool.pending:
        outcomes.update((outcome.ticket, outcome) for outcome in pool.wait(None))
    return [outcomes[ticket] for ticket in tickets]


def children() -> set[str]:
    """Processes this one has started and not waited for, zombies included."""
    listed = Path("/proc/self/task").glob("*/children")
    return {pid for threads in listed for pid in threads.read_text().split()}


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"


def eventually(holds: Any, within_s: float = 60.0) -> bool:
    end = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def pids_in(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in sorted(folder.glob("*.pid"))]


def mentioning(text: str) -> list[int]:
    """Processes with `text` in the environment they were started with."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (path / "environ").read_bytes() and alive(int(path.name)):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def write_pid(path: Path, pid: int) -> None:
    unfinished = path.with_suffix(".new")
    unfinished.write_text(str(pid))
    unfinished.rename(path)


def add(a: int, b: int) -> int:
    return a + b


def own_pid() -> int:
    return os.getpid()


def fail(message: str) -> None:
    raise ValueError(message)


def refuse_config() -> None:
    raise ConfigFailure(Status.RESOURCES, "too much shared memory", Limit("memory_bytes", 4096.0))


class Unsendable(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


def raise_unsendable() -> None:
    raise Unsendable


def leave(how: type[BaseException]) -> None:
    raise how(3)


def return_lock() -> Any:
    return threading.Lock()


def segfault(last_words: str) -> None:
    os.write(2, last_words.encode())
    ctypes.string_at(0)


def print_everywhere() -> None:
    print("from Python")
    print("to stderr", file=sys.stderr)
    subprocess.run(["sh", "-c", "echo from a child; echo its error >&2"], check=True)
    raise ValueError("after printing")


def print_endlessly() -> None:
    line = "x" * 1023 + "\n"
    while True:
        for _ in range(2000):
            sys.stdout.write(line)
        time.sleep(0.05)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.005)


def hang_with_children(folder: Path) -> None:
    """Leaves the numbers of itself and of three kinds of children in `folder`."""
    near = subprocess.Popen(["sleep", str(FOREVER)])
    apart = subprocess.Popen(["sleep", str(FOREVER)], start_new_session=True)
    orphan = subprocess.run(
        ["setsid", "sh", "-c", f"sleep {FOREVER} >/dev/null 2>&1 & echo $!"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    write_pid(folder / "near.pid", near.pid)
    write_pid(folder / "apart.pid", apart.pid)
    write_pid(folder / "orphan.pid", int(orphan.stdout))
    write_pid(folder / "self.pid", os.getpid())
    time.sleep(FOREVER)


def long_enough(folder: Path) -> Iterator[float]:
    """Rising time limits, until `hang_with_children` got as far as hanging."""
    for limit_s in (0.3, 2.0, 10.0, 50.0):
        yield limit_s
        if len(pids_in(folder)) == 4:
            return
    raise AssertionError("the task never got to start its children")


def leave_a_child_running() -> tuple[int, int]:
    child = subprocess.Popen(["sleep", str(FOREVER)], start_new_session=True)
    return os.getpid(), child.pid


def fork_and_return() -> int:
    """Both copies return; only one of them is the worker."""
    os.fork()
    return os.getpid()


def babble() -> None:
    """Writes nonsense to its connection."""
    for descriptor in range(3, 1 + max(map(int, os.listdir("/proc/self/fd")))):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, (7).to_bytes(8, "big") + b"garbage")
    time.sleep(FOREVER)


def spawn_and_crash(folder: Path) -> None:
    child = subprocess.Popen(["sleep", str(FOREVER)], start_new_session=True)
    write_pid(folder / "child.pid", child.pid)
    ctypes.string_at(0)


def surroundings() -> dict[str, Any]:
    return {
        "cwd": os.getcwd(),
        "TMPDIR": os.environ["TMPDIR"],
        "tempfile": tempfile.gettempdir(),
        "stdin": os.readlink("/proc/self/fd/0"),
        "session": os.getsid(0),
        "pid": os.getpid(),
        "files": sorted(os.listdir()),
    }


def litter() -> None:
    Path("object.o").write_text("…")
    Path("cache/deep").mkdir(parents=True)
    Path("cache/deep/entry").write_text("…")
    os.chdir("cache")


def allocate(size: int) -> int:
    return len(bytearray(size))


kept: list[mmap.mmap] = []


def keep_shared_memory(size: int) -> None:
    kept.append(mmap.mmap(-1, size))
    kept[-1].write(b"x" * size)


def share_memory(size: int, then_sleep_s: float) -> int:
    """Memory that a limit on what a process allocates does not count."""
    with mmap.mmap(-1, size) as shared:
        for _ in range(size >> 20):
            shared.write(b"x" * (1 << 20))
        time.sleep(then_sleep_s)
        return len(shared)


def work_in_stages() -> None:
    with stage("parse"):
        time.sleep(0.02)
    with stage("compile"):
        time.sleep(0.02)
        with stage("link"):
            time.sleep(0.02)
        with stage("compile"):
            time.sleep(0.02)


def work_in_threads() -> None:
    def work() -> None:
        with stage("thread"):
            time.sleep(0.02)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Counter:
    """An object for a session."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, n: int = 1) -> int:
        self.count += n
        return self.count

    def reset(self) -> None:
        self.count = 0

    def pid(self) -> int:
        return os.getpid()

    def echo(self, value: Any) -> Any:
        return value

    def run(self, call: Any, *args: Any) -> Any:
        return call(*args)


class Announced:
    """A factory that leaves a file when it has made its object."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> Counter:
        self._path.touch()
        return Counter()


def has_imported(module: str) -> bool:
    return module in sys.modules


def search_path() -> list[str]:
    return list(sys.path)


def broken_factory() -> Counter:
    raise ValueError("no such library")
