from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postgres_server import PostgresServer, new_namespace
from whet.store import Store, open_store
from whet.testing.store_kit import StoreContract

pytestmark = pytest.mark.medium


class OnServer(StoreContract):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_server: PostgresServer) -> Iterator[None]:
        self.server, self.made = postgres_server, list[Store]()
        yield
        for store in self.made:  # a server has only so many connections
            store.close()

    def kept(self, store: Store) -> Store:
        self.made.append(store)
        return store


class TestPostgresStore(OnServer):
    def make_store(self, folder: Path) -> Store:
        return self.kept(open_store(self.server.url(new_namespace()), direct=True))


class TestLocalFirstStore(OnServer):
    """A store of this host over one on a server, as processes that tune have it."""

    def make_store(self, folder: Path) -> Store:
        url, environ = self.server.url(new_namespace()), {"XDG_DATA_HOME": str(folder)}
        return self.kept(open_store(url, wait_s=5.0, environ=environ))
