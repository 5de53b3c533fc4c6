"""What a run may leave behind, seen from outside."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def eventually(holds: Callable[[], bool], within_s: float = 20.0) -> bool:
    end = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def children(pid: int | None = None) -> set[int]:
    """Processes that this one, or another, has started and not waited for, zombies included."""
    listed = Path(f"/proc/{pid or os.getpid()}/task").glob("*/children")
    found: set[int] = set()
    for threads in listed:
        try:
            found.update(int(child) for child in threads.read_text().split())
        except OSError:
            continue
    return found


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"


def mentioning(text: str) -> list[int]:
    """Processes other than this one that have `text` in the environment they started with."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            marked = text.encode() in (path / "environ").read_bytes()
        except OSError:
            continue
        if marked and int(path.name) != os.getpid() and alive(int(path.name)):
            found.append(int(path.name))
    return found


def is_pythons_trial(path: Path) -> bool:
    """Whether Python left it: `tempfile` tries each folder with a file of four letters, which it
    deletes again, unless it is killed in between."""
    if re.fullmatch("[a-z0-9_]{8}", path.name) is None or not path.is_file():
        return False
    try:
        return path.read_bytes() in (b"", b"blat")
    except OSError:
        return False


def left_of(scratch: Path) -> str:
    """Processes and files of what ran with `scratch` as its folder for temporary files, in words;
    empty where there is nothing."""
    files = [entry.name for entry in scratch.iterdir() if not is_pythons_trial(entry)]
    processes = mentioning(str(scratch))
    return f"processes {processes}, files {files}" if files or processes else ""


def check_nothing_left(scratch: Path) -> None:
    assert eventually(lambda: not left_of(scratch)), left_of(scratch)


@contextmanager
def nothing_held(scratch: Path) -> Iterator[None]:
    """Neither processes nor files nor descriptors are left of what is done inside."""
    before = children(), descriptors()
    yield
    check_nothing_left(scratch)
    assert (children(), descriptors()) == before


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def count(ci: int, full: int) -> int:
    # conftest removes WHET_* variables, so that this one has another prefix.
    return full if os.environ.get("FAULTS") == "full" else ci
