"""A network that can fail: a proxy between a client and a server on this host.

with CutProxy(server.port) as network:
    network.cut()      # as a cable pulled out of the client's own machine: everybody is told
    network.silence()  # as one pulled out elsewhere: nothing arrives, and nobody is told
    network.mend()
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

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
