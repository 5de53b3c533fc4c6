"""MLIR's Python bindings. No other module imports them, so a release that moves a name is mended
here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from typing import Any

from whet.core.errors import UsageError

DISTRIBUTION = "torch-mlir"
_PACKAGE = "torch_mlir"

# Parsing and applying say it as `error: "-":6:37: …` and as `… at loc("-":10:14): …`.
_PARSED = re.compile(r'error: "-":(\d+):(\d+): (.*)', re.DOTALL)
_APPLIED = re.compile(r'at loc\("-":(\d+):(\d+)\): (.*)', re.DOTALL)
_LATER = re.compile(r"\n\s*(?:at loc\(|error: |note: )")


@dataclass(frozen=True)
class Bindings:
    ir: Any
    pass_manager: Any
    execution_engine: Any
    interpreter: Any
    transform: Any
    version: str

    def context(self) -> Any:
        """Without threads of its own: configs are built in parallel already."""
        context = self.ir.Context()
        context.enable_multithreading(False)
        return context


@cache
def bindings() -> Bindings:
    try:
        return Bindings(
            ir=import_module(f"{_PACKAGE}.ir"),
            pass_manager=import_module(f"{_PACKAGE}.passmanager").PassManager,
            execution_engine=import_module(f"{_PACKAGE}.execution_engine").ExecutionEngine,
            interpreter=import_module(f"{_PACKAGE}.dialects.transform.interpreter"),
            transform=import_module(f"{_PACKAGE}.dialects.transform"),
            version=_version(),
        )
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != _PACKAGE:
            raise
        raise UsageError(
            "schedules need MLIR's Python bindings; install them with pip install 'whet[mlir]'"
        ) from None


def located(error: Exception, label: str) -> str:
    """`schedule.mlir:6:37: what is wrong`: the first thing MLIR says, where in the text it is."""
    text = str(error).strip()
    found = _PARSED.search(text) or _APPLIED.search(text)
    if found is None:
        return f"{label}: {text}"
    line, column, said = found.groups()
    return f"{label}:{line}:{column}: {_LATER.split(said)[0].strip()}"


def _version() -> str:
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"
