"""A PostgreSQL server in a temporary folder, that can be killed, paused and restarted.

with PostgresServer() as server:
    open_store(server.url("team"))
"""

from __future__ import annotations

import atexit
import glob
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from whet.core.errors import WhetError
from whet.core.trial import new_id

USER = "whet"
DATABASE = "whet"

_START_S = 60.0
# A killed server loses nothing: what it has committed is with the operating system.
_SETTINGS = {
    "fsync": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "autovacuum": "off",
}


# Of this process; its servers are copies of it.
_template = Path(tempfile.gettempdir(), f"whet-postgres-template-{new_id()[:12]}", "data")
_removals: list[subprocess.Popen[bytes]] = []


class PostgresMissingError(WhetError):
    """There is no server to start."""


def new_namespace() -> str:
    return f"t{new_id()[:12]}"


class PostgresServer:
    """Listens on a free port of this host. Its superuser needs no password; the roles that
    `scram_role` makes do. The server refuses root, so there it runs as the user postgres."""

    def __init__(self, **settings: str) -> None:
        self._bin = _programs()
        self._as: dict[str, Any] = other_user()
        self._folder = Path(tempfile.mkdtemp(prefix="whet-postgres-"))
        self._settings = {**_SETTINGS, **settings}
        self._server: subprocess.Popen[bytes] | None = None
        self._paused: list[int] = []
        self.port = free_port()

    @property
    def programs(self) -> Path:
        """The folder with pgbench, psql and the others."""
        return self._bin

    def url(self, namespace: str, user: str = USER, more: str = "") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{DATABASE}?namespace={namespace}{more}"

    def __enter__(self) -> Self:
        try:
            self._init()
            self.start()
            self.sql(f"CREATE DATABASE {DATABASE}", database="postgres")
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

    def start(self) -> None:
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [
                    str(self._bin / "postgres"),
                    *("-D", str(self._data), "-k", str(self._folder), "-p", str(self.port)),
                    *("-h", "127.0.0.1", *options),
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                **self._as,
            )
        self._wait()

    def kill(self) -> None:
        """SIGKILL to the server and all it has started, as a machine that loses power."""
        self._signal(signal.SIGKILL)
        assert self._server is not None
        self._server.wait()
        # A backend that has just been started is in no list yet; it goes with its parent.
        deadline = time.monotonic() + 5.0
        while self._stragglers() and time.monotonic() < deadline:
            for pid in self._stragglers():
                _send(pid, signal.SIGKILL)
            time.sleep(0.01)
        self._server = None

    def pause(self) -> None:
        self._paused = self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self._paused:
            _send(pid, signal.SIGCONT)
        self._paused = []

    def sql(self, *statements: str, database: str = DATABASE) -> list[tuple[Any, ...]]:
        """What the last one answers; as superuser."""
        import psycopg

        place = f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"
        with psycopg.connect(place, autocommit=True) as db:
            for statement in statements:
                found = db.execute(statement)
            return found.fetchall() if found.description else []

    def scram_role(self, name: str, password: str) -> None:
        """A role that has to give its password."""
        self.sql(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        hba = self._data / "pg_hba.conf"
        line = f"host all {name} 127.0.0.1/32 scram-sha-256\n"
        hba.write_text(line + hba.read_text())
        self.sql("SELECT pg_reload_conf()")

    def close(self) -> None:
        self.resume()
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            try:
                self._server.wait(10.0)
            except subprocess.TimeoutExpired:
                self.kill()
            self._server = None
        # A schema for each test makes for many files, and nobody needs to wait until they are gone.
        _removals.append(subprocess.Popen(["rm", "-rf", str(self._folder)]))

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _init(self) -> None:
        if self._as:
            shutil.chown(self._folder, self._as["user"], self._as["group"])
        if not _template.exists():
            self._init_at(_template)
        # Copying takes a tenth of the time of making one.
        subprocess.run(
            ["cp", "-r", "--reflink=auto", str(_template), str(self._data)], check=True, **self._as
        )

    def _init_at(self, folder: Path) -> None:
        folder.parent.mkdir(mode=0o755, exist_ok=True)
        atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
        if self._as:
            shutil.chown(folder.parent, self._as["user"], self._as["group"])
        subprocess.run(
            [
                str(self._bin / "initdb"),
                *("-D", str(folder), "-U", USER, "--auth=trust", "--no-sync", "-E", "UTF8"),
                "--no-locale",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
            **self._as,
        )

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_S
        while True:
            assert self._server is not None
            try:
                self.sql("SELECT 1", database="postgres")
                return
            except Exception as error:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    said = (self._folder / "log").read_text(errors="replace")[-2000:]
                    raise WhetError(f"PostgreSQL does not start: {error}\n{said}") from error
            time.sleep(0.02)

    def _signal(self, number: int) -> list[int]:
        assert self._server is not None
        # The parent first: it would start others.
        _send(self._server.pid, number)
        children = _children(self._server.pid)
        for pid in children:
            _send(pid, number)
        return [self._server.pid, *children]

    def _stragglers(self) -> list[int]:
        """Every process of this server, whoever its parent is by now."""
        found = []
        for path in glob.glob("/proc/[0-9]*/cwd"):
            with suppress(OSError):
                if os.readlink(path) == str(self._data):
                    found.append(int(path.split("/")[2]))
        return found


def _programs() -> Path:
    on_path = shutil.which("initdb")
    if on_path is not None and (Path(on_path).resolve().parent / "postgres").exists():
        return Path(on_path).resolve().parent
    found = glob.glob("/usr/lib/postgresql/*/bin/postgres")
    if not found:
        raise PostgresMissingError(
            "no PostgreSQL server is installed; install Debian's postgresql package "
            "(apt-get install postgresql), or put initdb and postgres on the PATH"
        )
    newest = max(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path)])
    return Path(newest).parent


def other_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        raise PostgresMissingError(
            "PostgreSQL does not run as root and there is no user postgres; add one, or run the "
            "tests as another user"
        ) from None
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(one) for one in text.split()]


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
