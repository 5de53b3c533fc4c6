"""A PostgreSQL server in a temporary folder, that can be killed, paused and restarted.

with PostgresServer() as server:
    open_store(server.url("team"))

`CutProxy` is a network before it that can be cut, `PgBouncer` a pooler.
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
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

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


State = Literal["whole", "cut", "silent"]


class CutProxy:
    """`mend` lets new connections through. Those that were silenced stay so for ever, as behind a
    router that has forgotten them."""

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._state: State = "whole"
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._held: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cut()
        self._listener.close()
        for one in self._held:
            one.close()

    def url(self, url: str) -> str:
        """The server's URL, through this proxy."""
        return url.replace(f":{self._to[1]}/", f":{self.port}/")

    def cut(self) -> None:
        with self._lock:
            self._state = "cut"
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _close(*pair)

    def silence(self) -> None:
        with self._lock:
            self._state = "silent"
            for pair in self._pairs:
                self._held += pair
            self._pairs = []

    def mend(self) -> None:
        with self._lock:
            self._state = "whole"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                state = self._state
                if state == "silent":
                    self._held.append(client)
            if state == "whole":
                self._join(client)
            elif state == "cut":
                client.close()

    def _join(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._to, timeout=5.0)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = (client, server)
        with self._lock:
            self._pairs.append(pair)
        for source, sink in (pair, pair[::-1]):
            threading.Thread(target=self._pump, args=(pair, source, sink), daemon=True).start()

    def _pump(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket
    ) -> None:
        while True:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            with self._lock:
                known = pair in self._pairs
            if not known:  # cut or silenced: what was under way is lost
                return
            if not data:
                break
            with suppress(OSError):
                sink.sendall(data)
        with self._lock:
            if pair in self._pairs:
                self._pairs.remove(pair)
        _close(*pair)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


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
