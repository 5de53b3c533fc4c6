"""Reads what a worker answers, and words what it can no longer say itself."""

from __future__ import annotations

import pickle
import signal
from dataclasses import dataclass
from typing import Any

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
