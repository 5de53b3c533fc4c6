"""From what a person writes to a store."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from whet.core.errors import UsageError
from whet.store.memory import MemoryStore
from whet.store.overlay import OverlayStore
from whet.store.protocol import Store
from whet.store.sqlite import SqliteStore

_VALID = "a path, sqlite:///relative/path, sqlite:////absolute/path, or :memory:"
_SQLITE = "sqlite:///"
_MEMORY = (":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:")


def open_store(
    where: str | Path | None = None,
    *,
    read_only: bool = False,
    bundle: str | Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Store:
    """`open_store("runs.db")`, `open_store("sqlite:///runs.db")`, `open_store(":memory:")`.

    None stands for `WHET_STORE`, and without that for `whet/store.db` in the XDG data folder.
    What follows `sqlite:///` is the path as it is: `?`, `#` and `%` mean themselves. What is not
    in the store is looked for in `bundle`, which is never written to.
    """
    path = store_path(where, environ)
    under = None if bundle is None else _bundled(bundle)
    store: Store
    if path is None:
        store = MemoryStore(read_only=read_only)
    else:
        store = SqliteStore(path, read_only=read_only)
    return store if under is None else OverlayStore(store, under)


def over_bundle(store: Store, bundle: str | Path) -> Store:
    """A store that is open already, over a bundle."""
    return OverlayStore(store, _bundled(bundle))


def open_if_there(
    where: str | Path | None = None,
    *,
    bundle: str | Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Store:
    """To be read only, and empty where there is no store: asking must not make one."""
    path = store_path(where, environ)
    if path is None or not os.path.exists(path):
        where = ":memory:"
    return open_store(where, read_only=True, bundle=bundle, environ=environ)


def _bundled(path: str | Path) -> Store:
    """Imported when used: few have a bundle, and everybody imports this."""
    from whet.store.bundles.bundle import active_bundle

    return active_bundle(path).store


def store_path(
    where: str | Path | None = None, environ: Mapping[str, str] = os.environ
) -> Path | None:
    """The file that `open_store` would open or make, None where it would be in memory."""
    if where is None:
        where = environ.get("WHET_STORE") or _default_path(environ)
    if str(where) in _MEMORY:
        return None
    return _expanded(where if isinstance(where, Path) else _path_of(where))


def _path_of(where: str) -> Path:
    if not where or "\0" in where:
        raise UsageError(f"store {where!r} is not a place; valid: {_VALID}")
    if where.startswith(_SQLITE):
        return Path(where.removeprefix(_SQLITE))
    scheme = re.match(r"sqlite:|[A-Za-z][A-Za-z0-9+.-]*://", where)
    if scheme:
        raise UsageError(f"store '{where}' starts with '{scheme[0]}'; valid: {_VALID}")
    return Path(where)


def _default_path(environ: Mapping[str, str]) -> Path:
    data = environ.get("XDG_DATA_HOME", "")
    # The XDG specification wants a relative path here to be ignored.
    folder = Path(data) if os.path.isabs(data) else _home(environ) / ".local" / "share"
    return folder / "whet" / "store.db"


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else _expanded(Path("~"))


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise UsageError(f"store {path}: {error}; set WHET_STORE or use --store") from error
