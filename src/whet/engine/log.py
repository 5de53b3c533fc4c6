"""One line a tuning event, on the standard logger "whet".

    event=chosen kernel=matmul key="M=512 dtype=f16" device="NVIDIA H200" pick="BM=64 num_warps=4"
    source=exact cost_s=0.0021 reason="tuned for this workload"

After a tuning, `tried=50/65536 stopped=trials` say how much of the space was tried and why no more.
Silent unless the program listens to that logger; `WHET_LOG=info` prints to stderr.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Mapping
from typing import Literal

from whet.core.config import Config
from whet.core.run import Coverage
from whet.core.workload import Workload

logger = logging.getLogger("whet")
logger.addHandler(logging.NullHandler())

_PLAIN = re.compile(r"[\w.:/+\-]+")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


class _Stderr(logging.Handler):
    """Whatever `sys.stderr` is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"whet: {record.getMessage()}", file=sys.stderr)


_printer = _Stderr()


def log_event(
    event: Literal["tuned", "chosen", "failed", "missed", "waiting", "waited"],
    workload: Workload,
    *,
    pick: Config | None,
    source: str,
    cost_s: float,
    reason: str,
    level: int = logging.INFO,
    coverage: Coverage | None = None,
) -> None:
    """`source` is where the pick comes from; `cost_s` what getting it took; `coverage`, where
    something was tuned, how much of its space was tried and why no more."""
    if not _heard(level):
        return
    parts = {
        "pick": "none" if pick is None else str(pick),
        "source": source,
        "cost_s": f"{cost_s:.4g}",
        "reason": reason,
    }
    if coverage is not None:
        size = "uncounted" if coverage.size is None else coverage.size
        parts |= {"tried": f"{coverage.tried}/{size}", "stopped": coverage.stopped or "unknown"}
    _log(event, workload, parts, level)


def log_note(workload: Workload, text: str) -> None:
    """What a tuning has to say that is no outcome."""
    _log("note", workload, {"reason": text})


def _log(
    event: str, workload: Workload, more: Mapping[str, str], level: int = logging.INFO
) -> None:
    if not _heard(level):
        return
    parts = {
        "event": event,
        "kernel": workload.kernel,
        "key": " ".join(f"{name}={value}" for name, value in workload.key.items()),
        "device": workload.device.name,
        **more,
    }
    logger.log(level, " ".join(f"{name}={_quoted(value)}" for name, value in parts.items()))


def _heard(level: int) -> bool:
    _listen()
    return logger.isEnabledFor(level)


def warn(text: str) -> None:
    """For what nobody may miss: on stderr as well, whoever listens."""
    _listen()
    logger.warning(text)
    if _printer not in logger.handlers:
        print(f"whet: {text}", file=sys.stderr, flush=True)


_said: set[str] = set()


def say_once(text: str) -> None:
    """As a warning of Python's: what people should know about their kernels."""
    if text not in _said:
        _said.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def _listen() -> None:
    level = _LEVELS.get(os.environ.get("WHET_LOG", "").strip().lower())
    printing = _printer in logger.handlers
    if level is not None and not printing:
        logger.addHandler(_printer)
        logger.setLevel(level)
    elif level is None and printing:
        logger.removeHandler(_printer)
        logger.setLevel(logging.NOTSET)


def _quoted(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
