from __future__ import annotations

from pathlib import Path

import pytest

from whet.store import Store, open_store
from whet.testing.postgres_server import PostgresServer, new_namespace
from whet.testing.store_kit import StoreContract

pytestmark = pytest.mark.slow


class TestPostgresStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_server: PostgresServer) -> None:
        self.server = postgres_server

    def make_store(self, folder: Path) -> Store:
        return open_store(self.server.url(new_namespace()), direct=True)


class TestLocalFirstStore(StoreContract):
    """A store of this host over one on a server, as processes that tune have it."""

    @pytest.fixture(autouse=True)
    def _server(self, postgres_server: PostgresServer) -> None:
        self.server = postgres_server

    def make_store(self, folder: Path) -> Store:
        environ = {"XDG_DATA_HOME": str(folder)}
        return open_store(self.server.url(new_namespace()), wait_s=5.0, environ=environ)
