"""What a call to another process comes to: a reply, or one of four errors; how a worker's answer is
read, and what it can no longer say itself is worded."""

from __future__ import annotations

import errno
import pickle
import signal
from dataclasses import dataclass, field
from typing import Any

from whet.core import errors
from whet.core.frozen import FrozenMap


class Garbled(Exception):
    """The worker sent what is no report: there is no talking to it any more."""


@dataclass(frozen=True)
class Report:
    """A worker's answer. `left_running`: the work left processes behind."""

    ok: bool
    value: Any
    exception: BaseException | None
    type_name: str
    text: str
    traceback: str
    seconds: float
    stages: FrozenMap[float]
    left_running: bool

    @property
    def summary(self) -> str:
        """`ValueError: no such tile`"""
        return f"{self.type_name}: {self.text}" if self.text else self.type_name


def read_report(frame: bytes) -> Report:
    """A value that does not load makes an error report. `Garbled` for what is no report at all."""
    try:
        (ok, value, exception, type_name, text, trace, seconds, stages, left_running) = (
            pickle.loads(frame)
        )
        if not all(isinstance(one, str) for one in (type_name, text, trace)):
            raise TypeError("not a string")
        stages, seconds = FrozenMap(dict(stages)), float(seconds)
    except Exception:
        raise Garbled("it did not send a report") from None
    loaded, problem = _load(value) if ok else (None, None)
    raised, _ = _load(exception) if exception is not None else (None, None)
    if problem is not None:
        raised = TypeError(
            f"the result cannot be loaded here ({type(problem).__qualname__}: {problem})"
        )
        ok, type_name, text = False, "TypeError", str(raised)
    return Report(
        ok=ok,
        value=loaded,
        exception=raised if isinstance(raised, BaseException) else None,
        type_name=type_name,
        text=text,
        traceback=trace,
        seconds=seconds,
        stages=stages,
        left_running=left_running,
    )


def describe_exit(returncode: int | None) -> str:
    """`-11` is "was killed by SIGSEGV", `3` is "exited with code 3"."""
    if returncode is None:
        return "sent an invalid answer"
    if returncode >= 0:
        return f"exited with code {returncode}"
    number = -returncode
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hint = ", perhaps because memory ran out" if number == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"


def with_output(summary: str, tail: str) -> str:
    return f"{summary}\n{tail}" if tail and tail not in summary else summary


def _load(packed: bytes) -> tuple[Any, BaseException | None]:
    try:
        return pickle.loads(packed), None
    except BaseException as problem:
        return None, problem


_REMEDIES = {
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit on open files",
    errno.EAGAIN: "raise the limit on processes (ulimit -u), or end some",
    errno.ENOMEM: "free some memory",
    errno.ENOSPC: "free some space, or set TMPDIR to another directory",
    errno.EDQUOT: "free some space, or set TMPDIR to another directory",
    errno.EROFS: "set TMPDIR to a writable directory",
}


class WorkerNotStarted(errors.HostFailure):
    """The machine has no room for another process: nothing that was to run there is to blame."""

    @classmethod
    def because(cls, problem: OSError) -> WorkerNotStarted:
        name = problem.filename
        remedy = _REMEDIES.get(problem.errno or 0, f"check {name}" if name else "try again")
        reason = f"{problem.strerror or problem}{f': {name}' if name else ''}"
        return cls(f"cannot start a worker process ({reason}); {remedy}")


class WorkerDied(errors.WhetError):
    """The process is gone, and with it everything the object knew."""

    def __init__(self, signal: int | None, stderr_tail: str, exitcode: int | None) -> None:
        super().__init__(signal, stderr_tail, exitcode)
        self.signal = signal
        self.stderr_tail = stderr_tail
        self.exitcode = exitcode

    def __str__(self) -> str:
        returncode = self.exitcode if self.signal is None else -self.signal
        return with_output(f"the worker {describe_exit(returncode)}", self.stderr_tail)


class WorkerTimeout(errors.WhetError):
    """The call took longer than it may, and the process was killed. `milestone` is the last one
    that it had told of, and `limit_s` what it may take from there on."""

    def __init__(self, limit_s: float, milestone: str = "") -> None:
        super().__init__(limit_s, milestone)
        self.limit_s = limit_s
        self.milestone = milestone

    def __str__(self) -> str:
        return f"the call was still running after {self.limit_s:g} s and was killed"


class RemoteError(errors.WhetError):
    """The object raised something that is not sent as itself."""

    def __init__(self, type_name: str, text: str, traceback: str) -> None:
        super().__init__(type_name, text, traceback)
        self.type_name = type_name
        self.text = text
        self.traceback = traceback

    def __str__(self) -> str:
        return f"{self.type_name}: {self.text}" if self.text else self.type_name


@dataclass(frozen=True)
class Reply:
    """`seconds` and `stages` were taken in the worker."""

    value: Any
    seconds: float
    stages: FrozenMap[float] = field(default_factory=FrozenMap)
