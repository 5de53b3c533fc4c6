"""Tables by path or by name, whoever wrote them."""

from __future__ import annotations

import os
from pathlib import Path

from whet.replay.decoding import TableError
from whet.replay.files import FileContent, is_ours, locate, parse_table, unpack
from whet.replay.kernel_tuner import kernel_tuner_table
from whet.replay.scanning import CutOff, Scanner
from whet.replay.t4 import t4_table
from whet.replay.table import Table


def read_table(path_or_name: str | os.PathLike[str]) -> Table:
    """whet's own format, a Kernel Tuner cache or T4, zipped or not; or a shipped table's name.

    A `TableError` names the file and what is wrong with it. A foreign file that is cut off is read
    as far as it goes, which the table's `notes` then say.
    """
    file = unpack(locate(path_or_name))
    return parse_table(file) if is_ours(file) else _foreign_table(file)


def read_kernel_tuner(path: str | os.PathLike[str]) -> Table:
    """A Kernel Tuner cache: one workload, whose key is the problem size."""
    return kernel_tuner_table(unpack(locate(Path(path))))


def read_t4(path: str | os.PathLike[str]) -> Table:
    """A T4 file: one workload. It names neither kernel nor device, so its file name has to."""
    return t4_table(unpack(locate(Path(path))))


def _foreign_table(file: FileContent) -> Table:
    """Told apart by their contents: `cache` is Kernel Tuner's, `results` is T4's."""
    scanner = Scanner(file.data.decode(errors="replace"))
    try:
        for name in scanner.members():
            if name in ("cache", "results"):
                return kernel_tuner_table(file) if name == "cache" else t4_table(file)
            scanner.value()
    except CutOff:
        pass
    raise TableError(
        f"{file.path} is not a table (whet, Kernel Tuner or T4)"
        + ("" if file.whole else "; the file is damaged or truncated")
    )
