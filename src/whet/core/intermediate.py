"""What a compiler made of a config on its way to the binary, kept as one file a build."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path

from whet.core.files import write_whole

# The fact of a trial that names its file.
FACT = "ir"
CODE_SUFFIX = ".json.gz"
LONGEST_NAME = 80
_MOST_BYTES = 64 << 20


def keep_stages(folder: Path, name: str, stages: Mapping[str, str]) -> None:
    """The texts by stage, in the order of the compiler; an `OSError` where they cannot be kept."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(folder, name)
    if path is not None and not path.exists():
        write_whole(path, gzip.compress(json.dumps(dict(stages)).encode(), mtime=0))


def kept_stages(folder: Path, name: object) -> dict[str, str]:
    """None of them where there is no such file, or it cannot be read."""
    path = _path(folder, name)
    try:
        if path is None or not path.is_file():
            return {}
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        data = json.loads(inflate.decompress(path.read_bytes(), _MOST_BYTES))
    except (OSError, ValueError, zlib.error, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    return {str(stage): text for stage, text in data.items() if isinstance(text, str)}


def _path(folder: Path, name: object) -> Path | None:
    """A store may name anything; only letters and digits are the name of a file of ours."""
    if not isinstance(name, str) or not (name.isascii() and name.isalnum()):
        return None
    return folder / f"{name[:LONGEST_NAME]}{CODE_SUFFIX}"
