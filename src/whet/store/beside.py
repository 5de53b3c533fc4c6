"""What lies beside a store's file: `runs.db` has the folders `locks`, `runs.db.models`,
`runs.db.columns` with what an explorer has read, `runs.db.ir` with intermediate code,
`runs.db.journeys` with reports of models, `runs.db.llm` with what models were asked and said, and
`runs.db.jit` with the specializations of kernels that programs have met."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from whet.core.files import write_whole
from whet.core.intermediate import CODE_SUFFIX, LONGEST_NAME
from whet.store.protocol import Models

MOST_BYTES = 16 << 20
COLUMN_SUFFIX = ".columns"
JOURNEY_SUFFIX = ".html"
ADVICE_SUFFIX = ".jsonl"
_SUFFIX = ".json"
_UNSTORED_S = 3600.0


def lock_folder_of(file: Path) -> Path:
    return file.parent / "locks"


def column_folder_of(file: str | Path) -> Path:
    return Path(f"{file}{COLUMN_SUFFIX}")


def code_folder_of(file: str | Path) -> Path:
    return Path(f"{file}.ir")


def journey_folder_of(file: str | Path) -> Path:
    return Path(f"{file}.journeys")


def advice_folder_of(file: str | Path) -> Path:
    return Path(f"{file}.llm")


def jit_folder_of(file: str | Path) -> Path:
    return Path(f"{file}.jit")


def removed_columns(file: Path, valid: Collection[str]) -> int:
    """Removes columns of all workloads but those; how many bytes that were."""
    files = column_folder_of(file).glob(f"*{COLUMN_SUFFIX}")
    return _removed([one for one in files if one.stem not in valid])


def removed_journeys(file: Path, there: Collection[str]) -> int:
    """Removes reports and questions of workloads that are not there; how many bytes that were."""
    reports = journey_folder_of(file).glob(f"*{JOURNEY_SUFFIX}")
    files = [*reports, *advice_folder_of(file).glob(f"*{ADVICE_SUFFIX}")]
    return _removed([one for one in files if one.stem not in there])


def removed_code(file: Path, named: Callable[[], Collection[object]]) -> int:
    """Removes intermediate code that no trial names; how many bytes that were."""
    files = list(code_folder_of(file).glob(f"*{CODE_SUFFIX}"))
    if not files:
        return 0
    names = {str(one)[:LONGEST_NAME] for one in named()}
    gone = (one for one in files if one.name.removesuffix(CODE_SUFFIX) not in names)
    return _removed([one for one in gone if _is_settled(one)])


def _removed(files: Iterable[Path]) -> int:
    """With their folder, where nothing else is in it."""
    freed = 0
    for file in files:
        with suppress(OSError):
            size = file.stat().st_size
            file.unlink()
            freed += size
            file.parent.rmdir()
    return freed


def _is_settled(file: Path) -> bool:
    """Code is written by the build, and named by a trial only once that is measured."""
    with suppress(OSError):
        return file.stat().st_mtime < time.time() - _UNSTORED_S
    return False


class FolderModels(Models):
    """One file a model. What cannot be read is not there; writing is all or nothing, and an
    `OSError` where it cannot be."""

    def __init__(self, folder: str | Path, *, read_only: bool = False) -> None:
        self._folder = Path(folder)
        self._read_only = read_only

    def __getitem__(self, name: str) -> str:
        path = self._path(name)
        try:
            if path.stat().st_size > MOST_BYTES:
                raise KeyError(name)
            return path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, text: str) -> None:
        path = self._path(name)
        if self._read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())

    def __delitem__(self, name: str) -> None:
        try:
            self._path(name).unlink()
        except OSError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        with suppress(OSError):
            yield from sorted(path.stem for path in self._folder.glob(f"*{_SUFFIX}"))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, name: str) -> Path:
        if not name.isalnum():
            raise KeyError(name)
        return self._folder / f"{name}{_SUFFIX}"


class LayeredModels(Models):
    """One's own, and where there is none those that lie under them, which are only read."""

    def __init__(self, own: Models, under: Models) -> None:
        self._own, self._under = own, under

    def __getitem__(self, name: str) -> str:
        text = self._own.get(name)
        return self._under[name] if text is None else text

    def __setitem__(self, name: str, text: str) -> None:
        self._own[name] = text

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)
