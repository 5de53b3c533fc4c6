"""`whet tune kernel.py:blur --store team:///srv/results`."""

from __future__ import annotations

import getpass
import platform
from pathlib import Path

from whet.core.errors import UsageError
from whet.store import MemoryStore, OverlayStore, SqliteStore, Store, open_if_there

SCHEME = "team://"


class TeamStore(OverlayStore):
    """A folder that is kept in sync between machines, with one SQLite file for each user of each.

    Everybody writes to their own file alone, so that nothing is ever in conflict. What the others
    have found is read when the store is opened, and counts as if it had been there before.
    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        folder = Path(url.removeprefix(SCHEME))
        if not folder.is_absolute():
            raise UsageError(f"store '{url}' is not absolute; write team:///srv/results")
        file = folder / f"{getpass.getuser()}@{platform.node()}.db"
        others = MemoryStore()
        for theirs in sorted(folder.glob("*.db")):
            if theirs != file:
                with SqliteStore(theirs, read_only=True) as other:
                    others.merge(other)
        own: Store = open_if_there(file) if read_only else SqliteStore(file)
        super().__init__(own, others)
        self._url = url

    @property
    def location(self) -> str:
        return self._url

    def close(self) -> None:
        super().close()
        # What is asked of it now is refused by name, and not by that of one's own file.
        super().__init__(_Closed(self._url), MemoryStore())


class _Closed(MemoryStore):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.close()

    @property
    def location(self) -> str:
        return self._url
