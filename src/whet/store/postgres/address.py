"""`PostgresAddress`: which server, database and namespace a URL means, and how to print it.

`postgresql://user@host/db?namespace=team` is libpq's URL with parameters of our own:

    namespace    the schema that holds the store; `whet` without one
    prepare      `yes` allows server-side prepared statements, which PgBouncer may not
    pool         the most connections of one process; 8 without one
    trust        `promoted` reads only what was promoted; `all` is the default
    trusted_keys a file of public keys: only entries signed with one of them are read
    signing_key  a file with a private key: what is written is signed with it
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from whet.core.errors import UsageError

DEFAULT_NAMESPACE = "whet"

_NAMESPACE = re.compile(r"[a-z_][a-z0-9_]{0,58}")
Trust = Literal["all", "promoted"]

_SECRET = ("password", "sslpassword")
_EXAMPLE = "postgresql://user@host/database?namespace=team"

# By the URL without its secrets: a store's `location` opens it again in this process.
_secrets: dict[str, str] = {}


@dataclass(frozen=True)
class PostgresAddress:
    """`dsn` is for libpq and may hold a password, so it is in no repr; `location` never does."""

    location: str
    namespace: str
    prepare: bool
    pool: int
    _dsn: tuple[str, ...]
    trust: Trust = "all"
    trusted_keys: str | None = None
    signing_key: str | None = None

    @property
    def dsn(self) -> str:
        return self._dsn[0]

    @property
    def digest(self) -> str:
        """A name for what this host keeps of this store: apart from each other where different
        entries are trusted, and together whoever signs."""
        return hashlib.sha256(_without(self.location, ("signing_key",)).encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"PostgresAddress({self.location!r})"


def parse_address(where: str) -> PostgresAddress:
    """Raises `UsageError`, which does not show the password."""
    shown = redacted(where)
    if _is_unquoted(where):
        raise UsageError(
            f"store '{shown}' is not valid: quote / as %2F, ? as %3F, # as %23 and @ as %40 in its "
            "password and parameters, or leave the password to PGPASSWORD or ~/.pgpass"
        )
    where = _secrets.get(where, where)
    if shown != where:
        _secrets[shown] = where
    try:
        parts = urlsplit(where)
        given = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
    except ValueError:
        raise UsageError(f"store '{shown}' is not valid; use {_EXAMPLE}") from None
    namespace = given.pop("namespace", DEFAULT_NAMESPACE)
    if not _NAMESPACE.fullmatch(namespace) or namespace.startswith("pg_"):
        raise UsageError(
            f"namespace '{namespace}' of store '{shown}' is not valid; use lower-case letters, "
            "digits and underscores, such as team_a"
        )
    prepare = given.pop("prepare", "no")
    if prepare not in ("yes", "no"):
        raise UsageError(f"prepare='{prepare}' of store '{shown}' is not valid; use yes or no")
    pool = given.pop("pool", "8")
    if not pool.isdecimal() or not 1 <= int(pool) <= 1000:
        raise UsageError(f"pool='{pool}' of store '{shown}' is not valid; use 1 to 1000")
    trust = given.pop("trust", "all")
    if trust not in get_args(Trust):
        raise UsageError(f"trust='{trust}' of store '{shown}' is not valid; use all or promoted")
    files = [given.pop(name, None) or None for name in ("trusted_keys", "signing_key")]
    query = urlencode(given, quote_via=quote)
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, query, ""))
    if not parts.netloc and not parts.path:
        dsn = f"postgresql:///?{query}" if query else "postgresql://"
    return PostgresAddress(
        shown, namespace, prepare == "yes", int(pool), (dsn,), cast(Trust, trust), *files
    )


def with_trust(where: str, given: Mapping[str, str | None]) -> str:
    """The URL of a server with these parameters, for those it does not have itself."""
    query = where.partition("?")[2]
    has = {name for name, _ in parse_qsl(query, keep_blank_values=True)}
    more = {
        name: value if name == "trust" else os.path.abspath(os.path.expanduser(value))
        for name, value in given.items()
        if value and name not in has and (name, value) != ("trust", "all")
    }
    if not more:
        return where
    joint = "&" if "?" in where else "?"
    return where + joint + urlencode(more, safe="/", quote_via=quote)


def redacted(where: str) -> str:
    """The URL without its password, which may hold any character that somebody forgot to quote: all
    up to the last @ may belong to it."""
    scheme, separator, rest = where.partition("://")
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    if not colon:
        return _without(where, _SECRET)
    if _names(re.split("[?&]", login)[-1], _SECRET):  # it goes on behind the @
        place = place.partition("&")[2]
    return _without(f"{scheme}{separator}{user}{at if user else ''}{place}", _SECRET)


def _is_unquoted(where: str) -> bool:
    """Whether nobody can tell where its password ends."""
    login = where.partition("://")[2].rpartition("@")[0]
    return ":" in login and any(mark in login for mark in "/?#@")


def _without(where: str, names: tuple[str, ...]) -> str:
    base, _, query = where.partition("?")
    kept = [one for one in query.split("&") if not _names(one, names)]
    return f"{base}?{'&'.join(kept)}" if any(kept) else base


def _names(parameter: str, names: tuple[str, ...]) -> bool:
    return unquote(parameter.partition("=")[0]) in names
