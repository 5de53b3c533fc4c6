"""Processes that find no results anywhere, and what they had when they were cut off.

A child writes its answer to a file, again after every part; so a child that is killed at its limit
leaves what it had. Nothing here imports torch: the parent must not hold the device.
"""

from __future__ import annotations

import compileall
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
POLL_S = 0.1

Answer = dict[str, Any]


class Notes:
    """A child's answer so far. Written to the side first: a reader never sees half of it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, answer: Mapping[str, Any]) -> None:
        beside = self._path.with_suffix(".part")
        beside.write_text(json.dumps(answer))
        beside.replace(self._path)


def empty_caches(folder: Path) -> dict[str, str]:
    """The variables under which Triton, CUDA and whet keep what they know in `folder`."""
    return {
        "TRITON_HOME": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "CUDA_CACHE_PATH": str(folder / "cuda"),
        "WHET_STORE": str(folder / "whet.db"),
        **{f"XDG_{kind}_HOME": str(folder / kind) for kind in ("DATA", "CACHE", "STATE")},
    }


def child(
    script: str,
    arguments: Sequence[str],
    folder: Path,
    limit_s: float,
    *,
    variables: Mapping[str, str] | None = None,
    stop: Callable[[Answer], bool] | None = None,
    before: Sequence[str] = (),
) -> Answer:
    """What `script` noted when run with `arguments` and `--out`, its caches in `folder`.

    It is killed after `limit_s`, or once `stop` says so of what it has noted; `exit_code` is then
    None. `before` is a command to put in front, such as a profiler.
    """
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "answer.json"
        command = [*before, sys.executable, str(HERE / script), *arguments, "--out", str(out)]
        environment = {**os.environ, **empty_caches(folder), **(variables or {})}
        start = time.perf_counter()
        process = subprocess.Popen(
            command, env=environment, stdout=sys.stderr, start_new_session=True
        )
        try:
            code = _ended(process, start + limit_s, out, stop)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return {**_noted(out), "exit_code": code, "process_s": time.perf_counter() - start}


def _ended(
    process: subprocess.Popen[bytes],
    end: float,
    out: Path,
    stop: Callable[[Answer], bool] | None,
) -> int | None:
    while time.perf_counter() < end:
        try:
            return process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            if stop is not None and stop(_noted(out)):
                return None
    return None


def _noted(out: Path) -> Answer:
    if not out.exists():
        return {}
    answer: Answer = json.loads(out.read_text())
    return answer


def byte_compile() -> None:
    """An installed package has its byte code; a checkout that never ran has not."""
    whet = importlib.util.find_spec("whet")
    if whet is None or whet.origin is None:
        raise SystemExit("whet is not importable: install it, or set PYTHONPATH=src")
    compileall.compile_dir(Path(whet.origin).parent, quiet=2)
    compileall.compile_dir(HERE, quiet=2, maxlevels=0)


class Record:
    """What a command has found out so far, in the file that `--json` names, if any."""

    def __init__(self, path: str | None) -> None:
        self._notes = Notes(Path(path)) if path else None
        self.rows: dict[str, Any] = {}

    def put(self, name: str, row: Any) -> None:
        self.rows[name] = row
        if self._notes is not None:
            self._notes.write(self.rows)
