"""What became of a config."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """Closed: a new outcome is a change of schema."""

    OK = "ok"
    CONSTRAINT = "constraint"
    RESOURCES = "resources"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"
    RUN_TIMEOUT = "run_timeout"
    WRONG_RESULT = "wrong_result"
    OUTRACED = "outraced"

    @property
    def measured(self) -> bool:
        """True where there is a timing one may rely on."""
        return self in (Status.OK, Status.OUTRACED)

    @property
    def failed(self) -> bool:
        return not self.measured
