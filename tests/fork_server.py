"""Python processes for tests that are forked from one that has imported torch and Triton.

`import torch` takes longer than most of what a test wants from another process. Here a server, one
for each process that runs tests, imports it once. What is forked from it then becomes what
`python -P script.py …`, `python -c …` or `python -m …` would be: a session of its own, its
environment, folder, streams and paths, and a child of the process that asked, which sees how it
ends. What depends on how an interpreter itself starts (PYTHONHASHSEED, TRITON_INTERPRET, which
module is imported first) needs a fresh one, and every file of tests should have such a test.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

# Nothing of whet's, which looks at the environment when it is imported.
_IMPORTED = (
    *("numpy", "torch", "triton", "triton.language", "triton.runtime.autotuner"),
    *("triton.backends.amd.compiler", "triton.backends.nvidia.compiler"),
    *("triton.experimental.gluon.language.nvidia.hopper", "concurrent.futures.thread"),
    *("multiprocessing", "multiprocessing.context", "rich.console", "rich.table", "sqlite3"),
    *("typer", "unittest.mock"),
)
_ADOPTION_LIMIT_S = 20.0
_ABOVE_OURS = 200
_PR_SET_CHILD_SUBREAPER = 36


class ForkServer:
    """Started with the first process that is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def start(
        self,
        command: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        cwd: str | Path,
        env: Mapping[str, str],
        pass_fds: Sequence[int] = (),
    ) -> int:
        """The number of the process. Whoever asked waits for it, as for any other child."""
        request = (list(command[1:]), str(cwd), dict(env), tuple(pass_fds), os.getpid())
        descriptors = (stdin, stdout, stderr, *pass_fds)
        with self._lock, _adopting():
            connection = self._open()
            socket.send_fds(connection, [pickle.dumps(request)], descriptors)
            pid = int(connection.recv(32) or 0)
        assert pid, "the fork server has ended, or its child was not adopted"
        return pid

    def run(
        self, command: Sequence[str], *, cwd: str | Path, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run(…, capture_output=True, text=True)`."""
        with (
            open(os.devnull, "rb") as nothing,
            tempfile.TemporaryFile("w+", encoding="utf-8") as out,
            tempfile.TemporaryFile("w+", encoding="utf-8") as err,
        ):
            streams = {"stdin": nothing.fileno(), "stdout": out.fileno(), "stderr": err.fileno()}
            pid = self.start(command, cwd=cwd, env=env, **streams)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(command, code, out.read(), err.read())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._server is not None:
            self._server.wait()
        self._connection = self._server = None

    def _open(self) -> socket.socket:
        if self._connection is None:
            near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with far:
                self._server = subprocess.Popen(
                    [sys.executable, "-P", __file__, str(far.fileno())],
                    env={n: v for n, v in os.environ.items() if n != "PYTHONPATH"},
                    pass_fds=(far.fileno(),),
                    start_new_session=True,
                )
            self._connection = near
        return self._connection


_one = ForkServer()


@contextlib.contextmanager
def one_server() -> Iterator[ForkServer]:
    """The same for all folders of tests."""
    try:
        yield _one
    finally:
        _one.close()


class ForkedWorkers:
    """What `whet.workers.process` finds instead of `subprocess`."""

    DEVNULL = subprocess.DEVNULL

    def __init__(self, server: ForkServer) -> None:
        self._server = server

    def Popen(  # noqa: N802
        self, command: Sequence[str], *, stdin: int, start_new_session: bool, **options: Any
    ) -> Any:
        assert stdin == self.DEVNULL
        assert start_new_session
        with open(os.devnull, "rb") as nothing:
            pid = self._server.start(command, stdin=nothing.fileno(), **options)
        return SimpleNamespace(pid=pid, returncode=None)


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Inside, an orphan among this process's descendants becomes its child."""
    prctl = ctypes.CDLL(None).prctl
    before = ctypes.c_int()
    prctl(37, ctypes.byref(before), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def _serve(connection: socket.socket) -> list[str]:
    """Returns in a forked process alone, with its command; the server's end is the end here."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 16)
        if not message:
            os._exit(0)
        between = os.fork()
        if between == 0:
            if os.fork():
                os._exit(0)  # and what it forked is an orphan, for the asking process to adopt
            return _settle(connection, pickle.loads(message), descriptors)
        os.waitpid(between, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def _settle(connection: socket.socket, request: Any, descriptors: Sequence[int]) -> list[str]:
    command, folder, environment, passed, parent = request
    os.setsid()
    deadline = time.monotonic() + _ADOPTION_LIMIT_S
    while os.getppid() != parent:
        if time.monotonic() > deadline:
            connection.send(b"0")
            os._exit(1)
        time.sleep(0.0005)
    connection.send(str(os.getpid()).encode())
    connection.close()
    import fcntl

    high = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, _ABOVE_OURS) for one in descriptors]
    os.closerange(3, _ABOVE_OURS)
    for one, wanted in zip(high, (0, 1, 2, *passed), strict=True):
        os.dup2(one, wanted)
        os.close(one)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = _writer(1, "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2, "backslashreplace")  # type: ignore[misc]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    return command


def _writer(descriptor: int, errors: str) -> Any:
    return open(descriptor, "w", encoding="utf-8", errors=errors, closefd=False)


def _become(command: list[str]) -> None:
    """Runs what Python was to run, in a `__main__` of its own."""
    safe = command[0] == "-P"
    what, *rest = command[safe:]
    paths = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    main = sys.modules["__main__"] = ModuleType("__main__")
    if what == "-m":
        import runpy

        sys.path[:0] = [os.getcwd(), *paths]
        sys.argv = ["-m", *rest[1:]]
        runpy._run_module_as_main(rest[0])
    elif what == "-c":
        sys.path[:0] = ["", *paths]
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.path[:0] = paths if safe else [os.path.dirname(os.path.abspath(what)), *paths]
        sys.argv = [what, *rest]
        main.__file__ = what
        exec(compile(Path(what).read_bytes(), what, "exec"), main.__dict__)


def _exit_code(problem: SystemExit) -> int:
    if isinstance(problem.code, int):
        return problem.code & 0xFF
    if problem.code is not None:
        print(problem.code, file=sys.stderr)
    return int(problem.code is not None)


def _leave(code: int) -> None:
    """As an interpreter does, but for taking all modules to pieces."""
    import atexit

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _main() -> None:
    import gc
    import importlib

    connection = socket.socket(fileno=int(sys.argv[1]))
    for name in _IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("triton.runtime.cache").triton_key()  # reads all of Triton
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command = _serve(connection)
    code = 0
    try:
        _become(command)
    except SystemExit as problem:
        code = _exit_code(problem)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    _leave(code)


if __name__ == "__main__":
    _main()
