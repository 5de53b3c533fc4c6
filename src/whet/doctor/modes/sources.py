"""How another process gets the model: from the file that makes it, or from a copy on disk."""

from __future__ import annotations

import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol

from whet.core.errors import UsageError
from whet.doctor.subject import Patient, subject_in, subject_of

# Set in the processes that time a mode, where a script that is run again must not start over.
CHILD = "WHET_DOCTOR_CHILD"


class SubjectSource(Protocol):
    def load(self) -> Patient:
        """Called in the process that runs the model."""


@dataclass(frozen=True)
class MadeInFile:
    path: str
    name: str
    training: bool = False

    def load(self) -> Patient:
        return subject_in(Path(self.path), self.name, training=self.training)


@dataclass(frozen=True)
class SavedOnDisk:
    """`main` is the script whose classes the model is made of; empty where it needs none."""

    path: str
    main: str = ""
    training: bool = False

    def load(self) -> Patient:
        import torch

        os.environ[CHILD] = "1"
        if self.main:
            module = ModuleType("__mp_main__")
            module.__dict__.update(runpy.run_path(self.main, run_name="__mp_main__"))
            sys.modules["__main__"] = sys.modules["__mp_main__"] = module
        model, calls = torch.load(self.path, weights_only=False)
        return subject_of(model, list(calls), training=self.training)


def save(subject: Patient, folder: Path) -> SavedOnDisk:
    """Raises `UsageError` for a model that cannot be pickled."""
    import torch

    path = folder / "subject.pt"
    try:
        torch.save((subject.model, subject.calls), path)
    except Exception as error:
        raise UsageError(
            f"{subject.name} cannot be sent to another process ({type(error).__name__}: {error}); "
            "write a function that makes it into a file, and run 'whet doctor FILE.py:FUNCTION'"
        ) from error
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    if _of_main(subject) and not main:
        raise UsageError(
            f"{subject.name} is defined in a session without a file, so that no other process can "
            "load it; write it into a file, and run 'whet doctor FILE.py:FUNCTION'"
        )
    return SavedOnDisk(str(path), main if _of_main(subject) else "", subject.training)


def _of_main(subject: Patient) -> bool:
    modules = getattr(subject.model, "modules", None)
    parts = [subject.model, *(modules() if callable(modules) else ())]
    return any(
        "__main__" in (type(part).__module__, getattr(part, "__module__", "")) for part in parts
    )


@dataclass(frozen=True)
class Again:
    """A mode to be looked at in a second process. `only_warm`: its program has been profiled and
    compared already. `failing`: it fails, and is asked for the part of the model that it fails on.
    """

    source: SubjectSource
    caches: str
    mode: str
    only_warm: bool = False
    failing: bool = False
