"""`postgresql://` URLs: what they mean, and that no password is ever shown."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from whet.core.errors import UsageError, WhetError
from whet.store import is_missing, lock_folder, open_store, store_place
from whet.store.postgres.address import parse_address, redacted

SECRET = "s3cret/and@more"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db/whet", "postgresql://db/whet"),
        ("postgresql://ann@db/whet", "postgresql://ann@db/whet"),
        ("postgresql://ann:s3cret@db:5432/whet", "postgresql://ann@db:5432/whet"),
        ("postgresql://:s3cret@db/whet", "postgresql://db/whet"),
        (f"postgresql://db/w?password={SECRET}&namespace=a", "postgresql://db/w?namespace=a"),
        (f"postgresql://db/w?sslpassword={SECRET}", "postgresql://db/w"),
        (f"postgresql://db/w?pass%77ord={SECRET}", "postgresql://db/w"),
        ("postgresql:///w?host=/run/postgresql", "postgresql:///w?host=/run/postgresql"),
        ("postgresql://", "postgresql://"),
    ],
)
def test_what_is_shown_has_no_password(url: str, shown: str) -> None:
    assert redacted(url) == shown
    address = parse_address(url)
    assert address.location == shown
    assert "s3cret" not in repr(address) + str(address)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://ann:{SECRET}@db:5432/whet", "postgresql://ann@db:5432/whet"),
        (f"postgresql://:{SECRET}@db/whet", "postgresql://db/whet"),
        ("postgresql://ann:s3cret?x@db/w?namespace=a", "postgresql://ann@db/w?namespace=a"),
        (f"postgresql://db:1/w?password={SECRET}&namespace=a", "postgresql://db@namespace=a"),
    ],
)
def test_a_password_that_has_to_be_quoted_is_refused_and_not_shown(url: str, shown: str) -> None:
    with pytest.raises(UsageError, match=r"quote / as %2F, \? as %3F") as raised:
        parse_address(url)
    assert f"'{shown}'" in str(raised.value)


@cache
def said_of(password: str) -> str:
    """All that is said about a store with this password, which nobody answers for."""
    url = f"postgresql://ann:{password}@127.0.0.1:1/whet?namespace=a"
    with pytest.raises(WhetError) as raised:
        open_store(url, direct=True)
    return f"{raised.value!r} {raised.value} {redacted(url)}"


PRINTABLE = st.characters(exclude_categories=["C", "Zl", "Zp"])


@pytest.mark.medium
@settings(max_examples=50, deadline=None)
@given(st.text(PRINTABLE, min_size=3) | st.text("?@:/#&=%[]x2", min_size=3))
@example("s3?cret")
@example("x?password=y")
@example("p%zzcret")
@example("[cret")
def test_no_message_has_the_password(password: str) -> None:
    assume(password not in said_of("zq9") + said_of("zq9/"))
    assert password not in said_of(password)


def test_a_location_opens_what_was_opened_with_a_password_in_this_process() -> None:
    address = parse_address("postgresql://bob:hunter2@db/whet?namespace=a")
    assert parse_address(address.location).dsn == "postgresql://bob:hunter2@db/whet"


def test_parameters_of_our_own_are_not_for_the_server() -> None:
    address = parse_address(
        "postgres://db/whet?namespace=team_a&prepare=yes&pool=3&sslmode=verify-full"
    )
    assert (address.namespace, address.prepare, address.pool) == ("team_a", True, 3)
    assert address.dsn == "postgresql://db/whet?sslmode=verify-full"


def test_without_parameters_there_is_a_namespace_and_nothing_is_prepared() -> None:
    address = parse_address("postgresql://db/whet")
    assert (address.namespace, address.prepare) == ("whet", False)


@pytest.mark.parametrize(
    "query",
    ["namespace=Team", "namespace=a;drop", "namespace=pg_x", "namespace=", "prepare=1", "pool=0"],
)
def test_a_parameter_that_is_not_valid_is_named_without_the_password(query: str) -> None:
    with pytest.raises(UsageError, match=query.split("=")[0]) as raised:
        parse_address(f"postgresql://ann:hunter2@db/whet?{query}")
    assert "hunter2" not in str(raised.value)


def test_a_place_is_named_without_a_password_and_is_no_file() -> None:
    url = "postgresql://ann:hunter2@db/whet"
    assert store_place(url) == "postgresql://ann@db/whet"
    assert not is_missing(url)
    assert lock_folder(url) is None


@pytest.mark.medium
def test_without_psycopg_one_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from whet.cli.app import main\n"
        "sys.exit(main(['store', 'stats', '--store', 'postgresql://ann:hunter2@db/whet']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install '.[postgres]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "hunter2" not in done.stderr + done.stdout


def test_importing_whet_imports_nothing_of_postgres() -> None:
    code = (
        "import sys, whet, whet.store\n"
        "print([name for name in sys.modules if 'psycopg' in name or 'postgres' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
