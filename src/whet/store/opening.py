"""From what a person writes to a store.

Of what does not name a file, memory or a PostgreSQL server, the scheme says which installed package
opens it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from whet.core.errors import StoreError, UsageError, option
from whet.core.plugins import Plugin, find_plugin, plugin_names
from whet.store.beside import code_folder_of, jit_folder_of, lock_folder_of
from whet.store.protocol import STORE_MEMBERS, Store, StoreReader

if TYPE_CHECKING:
    from whet.store.postgres.address import PostgresAddress

logger = logging.getLogger("whet")

_VALID = (
    "a path, sqlite:///relative/path, sqlite:////absolute/path, postgresql://host/database, "
    "or :memory:"
)
_SQLITE = "sqlite:///"
_MEMORY = ":memory:"
_IN_MEMORY = (_MEMORY, "sqlite://", "sqlite:///", "sqlite:///:memory:")
# How long a call waits for a server, once per outage; the setting `store_wait` has the same.
STORE_WAIT_S = 0.05

_POSTGRES = ("postgresql", "postgres")
_REDIS = ("redis", "rediss", "valkey")  # where others share such results
# Variables that say which entries of a shared store are read, and who signs what is written.
_TRUST = {name: f"WHET_{name.upper()}" for name in ("trust", "trusted_keys", "signing_key")}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def open_store(
    where: str | Path | None = None,
    *,
    read_only: bool = False,
    bundle: str | Path | None = None,
    direct: bool = False,
    wait_s: float = STORE_WAIT_S,
    environ: Mapping[str, str] = os.environ,
) -> Store:
    """`open_store("runs.db")`, `open_store("sqlite:///runs.db")`, `open_store(":memory:")`.

    None stands for `WHET_STORE`, and without that for `whet/store.db` in the XDG data folder.
    What follows `sqlite:///` is the path as it is: `?`, `#` and `%` mean themselves.
    `postgresql://user@host/database?namespace=team` is a store that a team shares. Any other
    scheme, as in `team:///mnt/results`, is a store of an installed package. What is not in the
    store is looked for in `bundle`, which is never written to.

    A shared store is used through one of this host, which goes on while the server is away; no call
    waits for the server longer than `wait_s`. With `direct` everything is asked of the server.
    """
    named = _named(where, environ)
    under = None if bundle is None else _bundled(bundle)
    store: Store
    if isinstance(named, Plugin):
        store = _of_package(named, _text(where, environ), read_only)
    elif named is None:
        from whet.store.sql import MemoryStore

        store = MemoryStore(read_only=read_only)
    elif isinstance(named, Path):
        from whet.store.sql import SqliteStore

        store = SqliteStore(named, read_only=read_only)
    else:
        store = _shared(named, read_only, direct, wait_s, environ)
    return store if under is None else _over(store, under)


def over_bundle(store: Store, bundle: str | Path) -> Store:
    """A store that is open already, over a bundle."""
    return _over(store, _bundled(bundle))


def open_if_there(
    where: str | Path | None = None,
    *,
    bundle: str | Path | None = None,
    direct: bool = False,
    wait_s: float = STORE_WAIT_S,
    environ: Mapping[str, str] = os.environ,
) -> Store:
    """To be read only, and empty where there is no store: asking must not make one."""
    if is_missing(where, environ):
        where = _MEMORY
    return open_store(
        where, read_only=True, bundle=bundle, direct=direct, wait_s=wait_s, environ=environ
    )


def store_place(where: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """The `location` of the store that `open_store` would open or make, without opening it."""
    named = _named(where, environ)
    if isinstance(named, Plugin):
        return _text(where, environ)
    if named is None:
        return _MEMORY
    return str(named.absolute()) if isinstance(named, Path) else named.location


def trusting(
    where: str,
    trust: Mapping[str, str | None] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """The URL of a shared store with these parameters, and else those of the environment; whatever
    else it is stays as it is."""
    scheme = _SCHEME.match(where)
    if scheme is None or scheme[1].lower() not in _POSTGRES:
        return where
    from whet.store.postgres.address import with_trust

    given = {name: environ.get(variable) for name, variable in _TRUST.items()}
    return with_trust(where, {**given, **{k: v for k, v in (trust or {}).items() if v}})


def printable(where: str) -> str:
    """What was typed, without the password where it is a URL."""
    if _SCHEME.match(where) is None:
        return where
    from whet.store.postgres.address import redacted

    return redacted(where)


class Unsent(NamedTuple):
    """Of this host: how many entries wait for the store's server, and why it refused others."""

    waiting: int = 0
    refused: tuple[str, ...] = ()


def unsent(where: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> Unsent:
    """Nothing where there is no server."""
    named = _named(where, environ)
    if named is None or isinstance(named, Path | Plugin):
        return Unsent()
    folder = _shared_folder(named, environ)
    if not (folder / "outbox.db").exists():
        return Unsent()
    from whet.store.postgres.outbox import Outbox

    outbox = Outbox(folder)
    try:
        return Unsent(len(outbox), tuple(outbox.refused))
    finally:
        outbox.close()


def is_missing(where: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether there is no store yet. One of a package is never missing: to be read, it is empty
    where there is nothing. Nor is one on a server, which only the server can tell."""
    named = _named(where, environ)
    return isinstance(named, Path) and not os.path.exists(named)


def lock_folder(
    where: str | Path | None = None, environ: Mapping[str, str] = os.environ
) -> Path | None:
    """That of the store, without opening it; None where only the open store can tell."""
    named = _named(where, environ)
    return lock_folder_of(named) if isinstance(named, Path) else None


def ir_folder(
    where: str | Path | None = None, environ: Mapping[str, str] = os.environ
) -> Path | None:
    """Where intermediate code of a store's trials is kept; None where there is no such place."""
    named = _named(where, environ)
    return code_folder_of(named.absolute()) if isinstance(named, Path) else None


def jit_folder(
    where: str | Path | None = None, environ: Mapping[str, str] = os.environ
) -> Path | None:
    """Where specializations that programs have met are kept; None where there is no such place."""
    named = _named(where, environ)
    return jit_folder_of(named.absolute()) if isinstance(named, Path) else None


def _over(store: Store, under: StoreReader) -> Store:
    from whet.store.overlay import OverlayStore

    return OverlayStore(store, under)


def _bundled(path: str | Path) -> StoreReader:
    """Imported when used: few have a bundle, and everybody imports this."""
    from whet.store.bundles.bundle import active_bundle

    return active_bundle(path).store


def _shared(
    address: PostgresAddress,
    read_only: bool,
    direct: bool,
    wait_s: float,
    environ: Mapping[str, str],
) -> Store:
    """Imported when used: it needs an extra."""
    folder = _shared_folder(address, environ)
    if direct:
        from whet.store.postgres.verified import open_direct

        return open_direct(address, read_only=read_only, folder=folder)
    from whet.store.postgres.local_first import LocalFirstStore

    return LocalFirstStore(address, folder, read_only=read_only, wait_s=wait_s)


def _shared_folder(address: PostgresAddress, environ: Mapping[str, str]) -> Path:
    """Where this host keeps its part: on a disk of its own, also where homes are on a network."""
    from whet.store.connecting import local_scratch, network_filesystem

    folder = _default_path(environ).parent / "shared"
    network = network_filesystem(folder)
    if network:
        where = f"{folder} is on a network file system ({network})"
        scratch = local_scratch(environ)
        if scratch is None:
            raise StoreError(
                f"store {address.location} needs a directory on this machine's own disk, and "
                f"{where}; set XDG_DATA_HOME to a local directory"
            )
        folder = scratch / "shared"
        if where not in _told:
            _told.add(where)
            logger.warning("%s, so what this host keeps of a shared store is in %s", where, folder)
    return folder / address.digest


_told: set[str] = set()


def _of_package(plugin: Plugin, where: str, read_only: bool) -> Store:
    made: Store = plugin.make(where, read_only=read_only)
    lacking = [name for name in STORE_MEMBERS if not hasattr(made, name)]
    if lacking:
        kind = type(made).__name__
        raise plugin.unfit(f"it made {kind!r}, which is not a Store: no {', '.join(lacking[:3])}")
    return made


def _text(where: str | Path | None, environ: Mapping[str, str]) -> str:
    return str(environ["WHET_STORE"] if where is None else where)


def _named(
    where: str | Path | None, environ: Mapping[str, str]
) -> Path | Plugin | PostgresAddress | None:
    """A file, a package's store, a server's, or None for memory."""
    if where is None:
        where = environ.get("WHET_STORE") or _default_path(environ)
    if str(where) in _IN_MEMORY:
        return None
    found = where if isinstance(where, Path) else _meant(trusting(where, environ=environ))
    return _expanded(found) if isinstance(found, Path) else found


def _meant(where: str) -> Path | Plugin | PostgresAddress:
    if not where or "\0" in where:
        raise UsageError(f"store {where!r} is not valid; use {_VALID}")
    if where.startswith(_SQLITE):
        return Path(where.removeprefix(_SQLITE))
    scheme = _SCHEME.match(where)
    if scheme is None and not where.startswith("sqlite:"):
        return Path(where)
    if scheme is not None and scheme[1].lower() in _POSTGRES:
        from whet.store.postgres.address import parse_address

        return parse_address(where)
    found = None if scheme is None else find_plugin("store", scheme[1].lower())
    if found is None:
        if scheme is not None and scheme[1].lower() in _REDIS:
            raise UsageError(
                f"store '{printable(where)}' cannot be used: there is no store on Redis; to share "
                "results use postgresql://host/database, or a bundle, which whet pack makes"
            )
        raise UsageError(f"store '{printable(where)}' is not valid; use {_VALID}{_others()}")
    return found


def _others() -> str:
    names = plugin_names("store")
    return f"; of installed packages: {', '.join(f'{name}://' for name in names)}" if names else ""


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
        raise UsageError(
            f"store {path}: {error}; set WHET_STORE or use {option('store')}"
        ) from error
