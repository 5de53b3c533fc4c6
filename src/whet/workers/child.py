"""What runs inside a worker process.

A pre-started worker runs this file as a script, so it imports the standard library only, and
little of that. A forked worker calls `settle_fork` and then the same functions.

Frames are an eight-byte length and that many bytes. A request is the pickle of
`(memory_bytes, pickled work)`; its answer is the pickle of the tuple that `perform` returns and
of whether the work left processes running.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import gc
import os
import pickle
import resource
import signal
import struct
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

HEADER = struct.Struct("!Q")
READY = b"ready"
# No pickle begins like this.
MILESTONE = b"milestone "
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

Work = tuple[Callable[..., Any], tuple[Any, ...]]

# A forked worker's inherited streams: dropping them would write out what the parent buffered.
_inherited: list[Any] = []


class ParentLink:
    """The files of this worker: its connection, its output and its folder."""

    def __init__(self, connection: int, folder: str) -> None:
        self.connection = connection
        self.folder = folder
        self.output = os.dup(1)
        self.streams = (sys.stdin, sys.stdout, sys.stderr)
        self.owner = os.getpid()

    def read(self) -> bytes | None:
        """The next frame, or None when the parent has gone."""
        header = self._read_exactly(HEADER.size)
        return None if header is None else self._read_exactly(HEADER.unpack(header)[0])

    def write(self, payload: bytes) -> None:
        if os.getpid() != self.owner:  # the task forked, and this is the copy
            os._exit(0)
        left = memoryview(HEADER.pack(len(payload)) + payload)
        while left:
            left = left[os.write(self.connection, left) :]

    def clear_output(self) -> None:
        os.ftruncate(self.output, 0)

    def flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()

    def tidy(self) -> None:
        """Undoes what a task may have done to the folder and to the standard streams."""
        os.chdir(self.folder)
        os.dup2(self.output, 1)
        os.dup2(self.output, 2)
        sys.stdin, sys.stdout, sys.stderr = self.streams
        with os.scandir(self.folder) as entries:
            left = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for path, is_folder in left:
            if is_folder:
                import shutil  # slow to import, and most tasks leave no folder

                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _read_exactly(self, count: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = os.read(self.connection, min(count - len(parts), 1 << 20))
            except ConnectionError:
                return None
            if not part:
                return None
            parts += part
        return bytes(parts)


class Keep:
    """The object of a session. Work for it is `(method, arguments)`; None makes the object.

    An object that has a `milestone` gets there what it can call in the middle of its work to tell
    the parent how far it is, which may limit the parts of a call one by one.
    """

    def __init__(self, factory: Callable[[], Any] | None = None) -> None:
        self._factory = factory
        self._object: Any = None
        self.write: Callable[[bytes], None] | None = None

    def load(self, payload: bytes) -> Work:
        method, arguments = pickle.loads(payload)
        return (self._make, arguments) if method is None else (self._call, (method, arguments))

    def _make(self, factory: Callable[[], Any] | None = None) -> None:
        make = factory or self._factory
        assert make is not None
        self._object = make()
        if hasattr(self._object, "milestone"):
            self._object.milestone = self._milestone

    def _milestone(self, name: str) -> None:
        if self.write is not None:
            self.write(MILESTONE + name.encode())

    def _call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        return getattr(self._object, method)(*arguments)


def perform(load: Callable[[], Work], memory_bytes: int | None) -> tuple[Any, ...]:
    """Does the work and says how it went, in types that any process can read.

    `(ok, pickled value, pickled exception, type name, text, traceback, seconds, stages)`
    """
    _take_stages()
    began = time.perf_counter()
    try:
        call, arguments = load()
    except BaseException as problem:
        text = (
            f"the worker could not load the task ({_describe(problem)}); "
            "define it in a module that can be imported, or use mode 'fork'"
        )
        return _failure(TypeError(text), time.perf_counter() - began)
    try:
        with memory_limit(memory_bytes):
            value = call(*arguments)
    except BaseException as problem:
        return _failure(problem, time.perf_counter() - began)
    seconds = time.perf_counter() - began
    try:
        packed = pickle.dumps(value, protocol=5)
    except BaseException as problem:
        name = type(value).__qualname__
        text = f"the result, of type {name}, cannot be sent back ({_describe(problem)})"
        return _failure(TypeError(text), seconds)
    return (True, packed, None, "", "", "", seconds, _take_stages())


@contextlib.contextmanager
def memory_limit(extra: int | None) -> Iterator[None]:
    """Lets this process allocate `extra` bytes on top of what it holds; then MemoryError."""
    if extra is None:
        yield
        return
    linux = sys.platform == "linux"
    kind = resource.RLIMIT_DATA if linux else resource.RLIMIT_AS
    soft, hard = resource.getrlimit(kind)
    bounds = [extra + (_data_bytes() if linux else 0)]
    bounds += [bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(kind, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def serve_tasks(link: ParentLink) -> None:
    """Does one task after another, each in an empty folder, until the parent hangs up."""
    while (frame := link.read()) is not None:
        memory_bytes, payload = pickle.loads(frame)
        link.clear_output()
        do_task(link, functools.partial(pickle.loads, payload), memory_bytes)
        link.tidy()


def do_task(link: ParentLink, load: Callable[[], Work], memory_bytes: int | None) -> None:
    report = perform(load, memory_bytes)
    link.flush()
    link.write(pickle.dumps((*report, has_children()), protocol=5))


def serve_session(link: ParentLink, keep: Keep) -> None:
    """Answers calls until the parent hangs up. Folder and children last as long as the object."""
    keep.write = link.write
    while (frame := link.read()) is not None:
        memory_bytes, payload = pickle.loads(frame)
        link.clear_output()
        report = perform(functools.partial(keep.load, payload), memory_bytes)
        link.flush()
        link.write(pickle.dumps((*report, False), protocol=5))


def has_children() -> bool:
    """Whether a process that the work started is still running. Reaps those that are not."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return False
        if ended is None:
            return True


def settle(parent: int) -> None:
    """Ties this process to its parent, and its own orphans to itself. Its crashes stay quiet."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform == "linux":
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")  # when memory runs out, a worker goes before the tuner
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def settle_fork(parent: int, folder: str, output: int, environment: dict[str, str]) -> None:
    """Makes a forked process what a pre-started one is: apart from its parent's terminal."""
    os.setsid()
    gc.freeze()
    _default_signals()
    settle(parent)
    os.environ.update(environment)
    tempfile: Any = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None
    os.chdir(folder)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(output, 1)
    os.dup2(output, 2)
    _inherited.extend((sys.stdin, sys.stdout, sys.stderr))
    _inherited.extend((sys.__stdin__, sys.__stdout__, sys.__stderr__))
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = _writer(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2)  # type: ignore[misc]


def _writer(descriptor: int) -> Any:
    return open(
        descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def _default_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if interrupt else signal.SIG_DFL)


def _data_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[5]) * resource.getpagesize()


def _take_stages() -> dict[str, float]:
    # Looked up, not imported: a task that times no stage should not load the package.
    stages = sys.modules.get("whet.workers.stages")
    return {} if stages is None else dict(stages.take())


def _failure(problem: BaseException, seconds: float) -> tuple[Any, ...]:
    import traceback  # slow to import, and most tasks succeed

    trace = problem.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    lines = traceback.format_exception(type(problem), problem, trace)
    try:
        packed = pickle.dumps(problem, protocol=5)
    except BaseException:
        packed = None
    name, text = type(problem).__qualname__, _text(problem)
    return (False, None, packed, name, text, "".join(lines), seconds, _take_stages())


def _describe(problem: BaseException) -> str:
    text = _text(problem)
    return f"{type(problem).__qualname__}: {text}" if text else type(problem).__qualname__


def _text(problem: BaseException) -> str:
    try:
        return str(problem)
    except Exception:
        return ""


def _main() -> None:
    connection, parent = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(connection, False)
    settle(parent)
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    sys.stderr.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    link = ParentLink(connection, os.getcwd())
    boot = link.read()
    if boot is None:
        return
    sys.path[:], for_session = pickle.loads(boot)
    # A task from the caller's script names `__main__`; it must not find this file there.
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv = [""]
    link.write(READY)
    if for_session:
        serve_session(link, Keep())
    else:
        serve_tasks(link)


if __name__ == "__main__":
    _main()
    os._exit(0)
