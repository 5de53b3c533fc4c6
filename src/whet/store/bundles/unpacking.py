"""`unpack_bundle`: what a bundle holds, taken into a store and a folder."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from whet.core.errors import UsageError
from whet.core.trial import new_id
from whet.store.bundles.bundle import Bundle
from whet.store.protocol import Store
from whet.store.reports import MergeReport


@dataclass(frozen=True)
class Unpacked:
    """What was not there before."""

    merged: MergeReport
    binaries: int


def unpack_bundle(bundle: Bundle, store: Store, binaries: Path | None = None) -> Unpacked:
    """All of it is checked before the first byte is written. A second time adds nothing.

    Each compiled kernel becomes a sub-folder of `binaries`, whole or not at all; one whose key is
    there already is left as it is.
    """
    bundle.check()
    merged = store.merge(bundle.store)
    count = 0
    for key in bundle.binary_keys() if binaries is not None else ():
        assert binaries is not None
        try:
            count += _put_binary(binaries, key, bundle.binary_files(key))
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(f"cannot write binary {key} to {binaries}: {reason}") from None
    return Unpacked(merged, count)


def _put_binary(folder: Path, key: str, files: dict[str, bytes]) -> bool:
    target = folder / key
    if os.path.lexists(target):
        return False
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{key[:32]}.{new_id()}.new"
    draft.mkdir()
    try:
        for name, data in files.items():
            with (draft / name).open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        draft.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        return False  # another process was quicker
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return True
