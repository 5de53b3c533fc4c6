"""Files that others wrote, which may hold anything, and files that others will read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from whet.core.errors import UsageError
from whet.core.files import write_whole

# Far above any file of configs, far below what would take a machine down.
LARGEST_BYTES = 64 << 20


class FormatError(UsageError):
    """A file that is not of the format it was said to be of."""


@dataclass(frozen=True)
class OutFile:
    """`path` is relative to the folder that the reader of the format looks in."""

    path: PurePosixPath
    text: str


def read_text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise FormatError(
                f"{path} is larger than {LARGEST_BYTES >> 20} MiB, the limit for such files"
            )
        return path.read_bytes().decode()
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError:
        raise FormatError(f"{path} is not a text file") from None


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file; one with a member twice is refused, since readers differ in
    which of the two they take."""
    text = read_text(path)
    try:
        data = json.loads(text, object_pairs_hook=_unrepeated)
    except _RepeatedName as error:
        raise FormatError(f"{path} has the key '{error}' twice") from None
    except (ValueError, RecursionError):
        raise FormatError(f"{path} is not valid JSON, or is truncated") from None
    if not isinstance(data, dict):
        raise FormatError(f"{path} is not a JSON object")
    return data


def refuse_to_lose(file: OutFile, folder: Path) -> None:
    """Raises where something else stands in the file's place."""
    target = folder / file.path
    try:
        lost = target.exists() and target.read_bytes() != file.text.encode()
    except (OSError, ValueError) as error:
        raise _unwritable(target, error) from None
    if lost:
        raise UsageError(f"{target} already exists and differs; use --force to overwrite it")


def write_out(file: OutFile, folder: Path) -> Path:
    """Puts the file in place as a whole, or leaves what was there."""
    target = folder / file.path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, file.text.encode())
    except (OSError, ValueError) as error:
        raise _unwritable(target, error) from None
    return target


def _unwritable(target: Path, error: Exception) -> UsageError:
    return UsageError(f"cannot write {target}: {getattr(error, 'strerror', None) or error}")


class _RepeatedName(Exception):
    pass


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, value in pairs:
        if name in data:
            raise _RepeatedName(name[:60])
        data[name] = value
    return data


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
