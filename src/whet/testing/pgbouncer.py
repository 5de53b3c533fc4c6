"""PgBouncer before a `PostgresServer`, pooling by transaction: sessions are nobody's own."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from whet.core.errors import WhetError
from whet.testing.postgres_server import (
    DATABASE,
    USER,
    PostgresMissingError,
    PostgresServer,
    free_port,
    other_user,
)

_START_S = 30.0


class PgBouncer:
    """`sessions` is how many connections to the server all clients share."""

    def __init__(self, server: PostgresServer, sessions: int) -> None:
        found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        if found is None:
            raise PostgresMissingError(
                "PgBouncer is not installed; install Debian's pgbouncer package "
                "(apt-get install pgbouncer), or put pgbouncer on the PATH"
            )
        self._program, self._server, self._sessions = found, server, sessions
        self._as = other_user()
        self._folder = Path(tempfile.mkdtemp(prefix="whet-pgbouncer-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def __enter__(self) -> Self:
        users, settings = self._folder / "users", self._folder / "pgbouncer.ini"
        users.write_text(f'"{USER}" ""\n')
        settings.write_text(f"""
[databases]
{DATABASE} = host=127.0.0.1 port={self._server.port} dbname={DATABASE}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {self._sessions}
max_client_conn = 1000
""")
        if self._as:
            for path in (self._folder, users, settings):
                shutil.chown(path, self._as["user"], self._as["group"])
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._program, str(settings)], stdout=log, stderr=log, cwd="/", **self._as
            )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def url(self, namespace: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{DATABASE}?namespace={namespace}"

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait(self) -> None:
        import psycopg

        deadline = time.monotonic() + _START_S
        while True:
            try:
                psycopg.connect(self.url("x").partition("?")[0]).close()
                return
            except psycopg.OperationalError as error:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > deadline:
                    said = (self._folder / "log").read_text(errors="replace")[-2000:]
                    raise WhetError(f"PgBouncer does not start: {error}\n{said}") from error
            time.sleep(0.02)
