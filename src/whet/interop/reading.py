"""What a reader is told beside the file, since no format says everything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ReadOptions:
    """None where the file knows better; `names` are those of the parts of Triton's keys."""

    kernel: str | None = None
    device: str | None = None
    names: tuple[str, ...] = ()


def written_at(path: Path) -> float:
    """When the file was last written: the nearest there is to when it was measured."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
