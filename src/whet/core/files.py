"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_whole(target: Path, data: bytes) -> None:
    """Puts the file in place of what is there; a reader sees one of both. An `OSError` where it
    cannot be written leaves what was there, and nothing else."""
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".whet-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
