"""Ends whole process trees: for the tuner while it lives, and in its place once it is dead.

Run as a script (`python -I -S reaper.py`) this is the reaper, a process that outlives the
tuner by a moment. It reads lines from the tuner:

    + TOKEN FOLDER    a worker with this folder is about to start
    = TOKEN PID       it has started
    - TOKEN           it is gone, and so is its folder

When the lines end, the tuner is gone, however that came about: what is still on the list is
killed and its folders are removed. Standard library only, since `-I -S` offers nothing else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

MARKER = "_WHET_WORKER"
_DEATH_LIMIT_S = 5.0
_ROUNDS = 50


class Tree(NamedTuple):
    """A worker and everything that descends from it.

    `token` is in the environment of each process that it started, under `MARKER`. `born` is its
    start time in the kernel's ticks, to tell it from a later process with the same number.
    """

    pid: int
    token: str
    folder: str
    born: int | None = None


class _Process(NamedTuple):
    state: str
    parent: int
    group: int
    session: int
    born: int


def kill_trees(trees: Collection[Tree]) -> set[int]:
    """Kills and returns all members, also those that left the process group or the session.

    Everything is stopped before anything is killed: a stopped process cannot start another one,
    and while the worker lives its orphans stay below it, where parent links find them.
    """
    if not os.path.isdir("/proc/self"):
        return _kill_groups(trees)
    doomed: set[int] = set()
    for _ in range(_ROUNDS):
        found = _members(trees) - doomed
        if not found:
            break
        _signal(found, signal.SIGSTOP)
        doomed |= found
    _signal(doomed, signal.SIGKILL)
    _await_death(doomed)
    return doomed


def remove_folder(folder: str) -> None:
    """Removes a tree of files, also below folders that were made unreadable."""
    import shutil  # slow to import, and the reaper rarely needs it

    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.isdir(folder):
        return
    for path, names, _ in os.walk(folder):
        for inner in [path, *(os.path.join(path, name) for name in names)]:
            if not os.path.islink(inner):
                with contextlib.suppress(OSError):
                    os.chmod(inner, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def start_time(pid: int) -> int | None:
    process = _look_up(pid)
    return None if process is None else process.born


def descendants(pid: int) -> set[int]:
    """The processes below `pid`, with those that have ended and that nobody has awaited yet: such a
    one may have left another behind while this looked."""
    return _with_descendants({pid}, dict(_processes())) - {pid}


def _members(trees: Collection[Tree]) -> set[int]:
    table = dict(_processes())
    leaders = {tree.pid for tree in trees if tree.pid and _still(tree, table.get(tree.pid))}
    marks = [f"{MARKER}={tree.token}\0".encode() for tree in trees]
    found = {
        pid
        for pid, process in table.items()
        if not leaders.isdisjoint((pid, process.group, process.session)) or _marked(pid, marks)
    }
    whole = _with_descendants(found, table)
    return {pid for pid in whole if table[pid].state not in "ZX"} - {os.getpid()}


def _with_descendants(pids: set[int], table: Mapping[int, _Process]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    found, pending = set(pids), list(pids)
    while pending:
        below = [pid for pid in children.get(pending.pop(), ()) if pid not in found]
        found.update(below)
        pending.extend(below)
    return found


def _still(tree: Tree, process: _Process | None) -> bool:
    return process is None or tree.born is None or process.born == tree.born


def _processes() -> Iterator[tuple[int, _Process]]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := _look_up(int(name))) is not None:
            yield int(name), process


def _look_up(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return _Process(fields[0], int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def _marked(pid: int, marks: Iterable[bytes]) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read() + b"\0"
    except OSError:
        return False
    return any(mark in environment for mark in marks)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _await_death(pids: Iterable[int]) -> None:
    end = time.monotonic() + _DEATH_LIMIT_S
    pause = 0.0005
    left = set(pids)
    while left and time.monotonic() < end:
        left = {pid for pid in left if (p := _look_up(pid)) is not None and p.state not in "ZX"}
        if left:
            time.sleep(pause)
            pause = min(2 * pause, 0.02)


def _kill_groups(trees: Collection[Tree]) -> set[int]:
    for tree in trees:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(tree.pid, signal.SIGKILL)
    return {tree.pid for tree in trees}


def _guard() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    trees: dict[str, Tree] = {}
    for line in sys.stdin.buffer:
        sign, token, *rest = os.fsdecode(line).rstrip("\n").split(" ", 2)
        if sign == "+":
            trees[token] = Tree(0, token, rest[0])
        elif sign == "=" and token in trees:
            pid = int(rest[0])
            born = start_time(pid)
            if born is not None:
                trees[token] = trees[token]._replace(pid=pid, born=born)
        elif sign == "-":
            trees.pop(token, None)
    if trees:
        kill_trees(trees.values())
    for tree in trees.values():
        remove_folder(tree.folder)


if __name__ == "__main__":
    _guard()
