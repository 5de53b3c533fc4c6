"""The same mode once more, in a second process that finds the caches filled.

What is asked of it must not disturb the process that times the mode: how long compiling takes when
the caches are warm, whether anything is compiled or tuned again, and the profile of a step.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from whet.core.config import Value
from whet.doctor.modes.sources import CHILD, Again

LIMIT_S = 600.0
_MORE_STEPS = 8


def run_again(again: Again) -> dict[str, Value]:
    """What the second process found out; why it did not, where it failed."""
    with tempfile.TemporaryDirectory(prefix="whet-doctor-") as folder:
        asked, answer = Path(folder, "asked"), Path(folder, "answer")
        asked.write_bytes(pickle.dumps((os.getpid(), again)))
        command = [sys.executable, "-m", "whet.doctor.modes.second", str(asked), str(answer)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                env=child_environment(),
            )
        except subprocess.TimeoutExpired:
            return {"second_process": f"did not end within {LIMIT_S:.0f} s"}
        with suppress(OSError, ValueError):
            told: dict[str, Value] = json.loads(answer.read_text())
            return told
    last = done.stderr.strip().splitlines()
    return {"second_process": f"failed: {last[-1] if last else done.returncode}"}


class SecondCopy:
    """A copy of this process, made before anything was computed in it, that waits to be asked: it
    need not import what this one has. It can be asked once. Its files lie in `folder`, which
    whoever made that removes: it may never be asked."""

    def __init__(self, folder: str) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.mkdtemp(prefix="second-", dir=folder)
        reading, self._writing = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._writing)
            _wait_and_tell(parent, reading, Path(self._folder))
        os.close(reading)

    def run(self, again: Again) -> dict[str, Value]:
        """As `run_again`; where the copy is used up, by that."""
        if not self._pid:
            return run_again(again)
        folder, pid, self._pid = Path(self._folder), self._pid, 0
        try:
            (folder / "asked").write_bytes(pickle.dumps(again))
            os.close(self._writing)
            code = _ended_with(pid)
            if code is None:
                return {"second_process": f"did not end within {LIMIT_S:.0f} s"}
            with suppress(OSError, ValueError):
                told: dict[str, Value] = json.loads((folder / "answer").read_text())
                return told
            last = (folder / "said").read_text(errors="replace").strip().splitlines()
            return {"second_process": f"failed: {last[-1] if last else code}"}
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _wait_and_tell(parent: int, reading: int, folder: Path) -> None:
    """Never returns. The other end of the pipe is closed when it is to begin, or has died."""
    code = 1
    try:
        end_with(parent)
        os.read(reading, 1)
        said = os.open(folder / "said", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.environ[CHILD] = "1"
        _tell(pickle.loads((folder / "asked").read_bytes()), folder / "answer")
        code = 0
    except BaseException as problem:
        os.write(2, f"{type(problem).__name__}: {problem}".encode())
    finally:
        os._exit(code)


def _ended_with(pid: int) -> int | None:
    """None where it had to be killed."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        ended = bool(poll.poll(LIMIT_S * 1000))
    finally:
        os.close(descriptor)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def child_environment() -> dict[str, str]:
    """Modules are found where this process finds them."""
    return {**os.environ, CHILD: "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _tell(again: Again, answer: Path) -> None:
    from whet.doctor.modes.compiler import CompilerWatch
    from whet.doctor.modes.failing import smallest_failure
    from whet.doctor.modes.loaded import LoadedMode, set_caches
    from whet.doctor.modes.variants import compiled

    set_caches(again.caches)
    import torch

    torch.manual_seed(0)
    subject = again.source.load()
    if again.failing:
        found = smallest_failure(subject, again.mode, lambda model: compiled(model, again.mode))
        answer.write_text(json.dumps(found))
        return
    watch = CompilerWatch()
    mode = LoadedMode(subject, again.mode)
    mode.compile()
    began = time.perf_counter()
    mode.repeat(1)
    said: dict[str, Value] = {"warm_first_call_s": time.perf_counter() - began}
    with suppress(Exception):
        said.update(watch.cache_facts())
    if not again.only_warm:
        mode.repeat(3)
        said.update(_steps(mode))
    answer.write_text(json.dumps(said))


def _steps(mode: object) -> dict[str, Value]:
    """A part that fails costs that part."""
    from whet.doctor.modes.compiler import recordings
    from whet.doctor.modes.loaded import LoadedMode
    from whet.doctor.modes.profile import by_layer, issued_ns, profiled

    assert isinstance(mode, LoadedMode)
    said: dict[str, Value] = {}
    with suppress(Exception):
        before = recordings(mode.device)
        mode.repeat(_MORE_STEPS)
        after = recordings(mode.device)
        if before is not None and after is not None:
            said["graphs_recorded"] = before
            said["recorded_again"] = after - before
    with suppress(Exception):
        if mode.device is not None:
            said["host_ns"] = issued_ns(lambda: mode.issue(1), mode.wait)
    try:
        said.update(profiled(mode.repeat, mode.device is not None))
    except Exception as error:
        said["not_profiled"] = f"{type(error).__name__}: {error}"
    if mode.eager:
        with suppress(Exception):
            said.update(by_layer(mode.repeat, mode.device is not None))
    with suppress(Exception):
        said.update(mode.numerics())
    return said


def end_with(parent: int) -> None:
    """Dies with the process that times the mode, which may be killed."""
    with suppress(Exception):
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(1)


if __name__ == "__main__":
    _parent, _again = pickle.loads(Path(sys.argv[1]).read_bytes())
    end_with(_parent)
    _tell(_again, Path(sys.argv[2]))
