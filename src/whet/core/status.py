"""What became of a config."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """The outcome of a trial. A new value would be a change of the store schema."""

    OK = "ok"
    CONSTRAINT = "constraint"
    RESOURCES = "resources"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"
    RUN_TIMEOUT = "run_timeout"
    WRONG_RESULT = "wrong_result"
    OUTRACED = "outraced"

    def __init__(self, value: str) -> None:
        # There is a timing one may rely on.
        self.measured = value in ("ok", "outraced")
        self.failed = not self.measured
