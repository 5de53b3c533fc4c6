"""What is fuzzed, and what counts as a crash."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Literal

Shape = Literal["bytes", "text", "json", "lines", "words"]

# Of processor time, so that a busy machine makes nothing look like a hang.
LIMIT_S = 5.0
FOUND = Path(__file__).parent / "found"

RUNS_CODE = (
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect",
    "ctypes.dlopen", "pty.spawn", "os.remove", "os.rename", "shutil.rmtree", "os.kill",
)  # fmt: skip


class WrongAnswerError(Exception):
    """Damaged input was taken for sound."""


class EscapedError(BaseException):
    """Input made the reader do what no reader does; not to be caught by a parser."""


class HungError(BaseException):
    """The time for one input is up."""


@dataclass(frozen=True)
class Target:
    """`parse` may return, or raise one of `refusals`; anything else is a crash.

    `shape` is how inputs are built, the same for all: from `seeds`, valid ones, and `words`, what
    its grammar knows. `watched` are the parts of whet whose lines guide the loop. `per_million` is
    its share of a million inputs, by its speed. `forbidden` are audit events that make it a crash.
    """

    name: str
    parse: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    refusals: tuple[type[Exception], ...]
    watched: tuple[str, ...]
    shape: Shape = "bytes"
    words: tuple[str, ...] = ()
    per_million: int = 20_000
    forbidden: tuple[str, ...] = RUNS_CODE


@dataclass(frozen=True)
class Crash:
    """`where` tells one crash from another: the error's type and the innermost line of ours."""

    where: str
    data: bytes
    text: str


def attempt(target: Target, data: bytes, limit_s: float = LIMIT_S) -> Crash | None:
    """None for an input that was read or refused as it should be."""
    try:
        with _processor_time(limit_s), _harmless(target.forbidden):
            target.parse(data)
    except target.refusals as refusal:
        try:
            if not str(refusal).strip():
                return Crash(f"{type(refusal).__name__} without a word", data, "")
        except Exception as error:
            return _crash(error, data)
    except (Exception, HungError, EscapedError) as error:
        return _crash(error, data)
    return None


def _crash(error: BaseException, data: bytes) -> Crash:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/whet/" in frame.filename] or frames
    last = ours[-1] if ours else None
    place = "" if last is None else f" in {Path(last.filename).stem}.{last.name}"
    if isinstance(error, WrongAnswerError):
        place = f": {re.split(r'[^a-z ]', str(error), maxsplit=1)[0].strip()}"
    text = "".join(traceback.format_exception(error))[-3000:]
    return Crash(f"{type(error).__name__}{place}", data, text)


@contextmanager
def _processor_time(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise HungError(f"more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


_forbidden: list[tuple[str, ...]] = []
_listening = False


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if _forbidden and event.startswith(_forbidden[-1]):
        raise EscapedError(f"{event}{arguments!r:.200}")


@contextmanager
def _harmless(events: tuple[str, ...]) -> Iterator[None]:
    """Any of these audit events is a crash. Python renames a file, too, when it first imports a
    module: it writes no byte code here."""
    global _listening
    if not _listening:  # a hook cannot be taken off again
        sys.addaudithook(_listen)
        _listening = True
    _forbidden.append(events)
    writing, sys.dont_write_bytecode = not sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = not writing
        _forbidden.pop()


def regressions(target: Target) -> list[Path]:
    """The inputs that once were crashes."""
    return sorted((FOUND / target.name).glob("*"))


@cache
def _folder(process: int) -> Path:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="whet-fuzz-", dir=memory))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def folder() -> Path:
    return _folder(os.getpid())


def written(name: str, data: bytes) -> Path:
    path = folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
