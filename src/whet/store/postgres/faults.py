"""PostgreSQL's errors, in words: which store, what happened, what to do. Never the password."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.core.errors import StoreError, install_extra

if TYPE_CHECKING:
    import psycopg

    from whet.store.postgres.address import PostgresAddress

INSTALL = (
    "a postgresql:// store needs psycopg, which is not installed; "
    f"install it with {install_extra('postgres')}"
)

# By SQLSTATE, or its first two characters, which are its class.
_WORDS = {
    "28": ("refused the login", "check the user and password (PGPASSWORD, ~/.pgpass)"),
    "3D": ("has no such database", "create it with 'createdb NAME', or name another"),
    "42501": (
        "does not allow this",
        "ask an administrator for a role with this right, as described in docs/fleet.md",
    ),
    "25006": ("is read-only", "connect to the primary server"),
    "53100": ("is on a full disk", "free some space on the server"),
    "53300": ("has too many connections", "raise max_connections, or put PgBouncer before it"),
    "57014": ("cancelled the statement", "raise statement_timeout, or try again"),
    "3F000": ("has no whet store there", "create it with 'whet store init'"),
    "42P01": ("has no complete whet store there", "create it with 'whet store init'"),
}


class ServerAwayError(StoreError):
    """The server cannot be reached, or the connection to it was lost."""

    def __init__(self, location: str, reason: str) -> None:
        super().__init__(
            f"store {location} cannot be reached ({reason}); check the server and network"
        )
        self.reason = reason


class NotNowError(StoreError):
    """The server is there and cannot do this now: read-only, full, too busy; what it could not take
    is as good as before. `lasting` where a person has to do something first."""

    def __init__(self, message: str, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


# A trigger refuses one entry, with the SQLSTATE of a missing right; the server says who raised it.
_BY_A_TRIGGER = "exec_stmt_raise"

# Classes of SQLSTATE that say something of the server and nothing of what was sent.
_LASTING = ("28", "3D", "3F", "42")
_PASSING = (*_LASTING, "08", "25", "40", "53", "54", "55", "57", "58", "XX")


def postgres_error(address: PostgresAddress, error: psycopg.Error) -> StoreError:
    """`store postgresql://db/whet refused the login (…); check the user and password …`"""
    import psycopg

    reason = (error.diag.message_primary or str(error)).strip().partition("\n")[0]
    reason = without_secrets(reason, address)
    state = error.sqlstate or ""
    found = _WORDS.get(state) or _WORDS.get(state[:2])
    if found is None and "authentication failed" in reason:
        found, state = _WORDS["28"], "28"
    lasting = state.startswith(_LASTING)
    if found is not None:
        text = f"store {address.location} {found[0]} ({reason}); {found[1]}"
        by_a_trigger = error.diag.source_function == _BY_A_TRIGGER
        return StoreError(text) if by_a_trigger else NotNowError(text, lasting)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return ServerAwayError(address.location, reason)
    if state.startswith(_PASSING):
        text = f"store {address.location} failed ({reason}); run 'whet store stats --check'"
        return NotNowError(text, lasting)
    if isinstance(error, psycopg.DataError):
        return StoreError(f"store {address.location} cannot hold this ({reason}); use valid text")
    return StoreError(f"store {address.location} failed ({reason}); run 'whet store stats --check'")


def without_secrets(text: str, address: PostgresAddress) -> str:
    """libpq quotes what it cannot parse, and that may be the URL."""
    from urllib.parse import parse_qsl, unquote, urlsplit

    try:
        parts = urlsplit(address.dsn)
        secrets = [parts.password, unquote(parts.password or "")]
        secrets += [v for k, v in parse_qsl(parts.query) if k in ("password", "sslpassword")]
    except ValueError:
        secrets = []
    text = text.replace(address.dsn, address.location)
    for secret in secrets:
        if secret and len(secret) > 2:
            text = text.replace(secret, "…")
    return text


def closed_error(location: str) -> StoreError:
    return StoreError(f"store {location} is closed; open it again")


def read_only_error(location: str) -> StoreError:
    return StoreError(f"store {location} is read-only; open it without read_only")
