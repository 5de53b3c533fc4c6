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
        return open_store(self.server.url(new_namespace()))
