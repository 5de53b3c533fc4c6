"""The parent's end of a worker's connection: whole frames over a socket that never blocks."""

from __future__ import annotations

import os

from whet.workers import descriptors
from whet.workers.child import HEADER

_CHUNK = 1 << 18

# A header that announces more than this was written by the work itself, into what is not its own.
_LONGEST = 1 << 40


class Channel:
    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._incoming = bytearray()
        self._outgoing = memoryview(b"")

    @property
    def unsent(self) -> bool:
        return len(self._outgoing) > 0

    def send(self, payload: bytes) -> None:
        """Sends what fits now; `flush` sends the rest."""
        self._outgoing = memoryview(bytes(self._outgoing) + HEADER.pack(len(payload)) + payload)
        self.flush()

    def flush(self) -> None:
        """A worker that is gone shows itself to `receive`, so its broken pipe is no error here."""
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[os.write(self.descriptor, self._outgoing) :]
        except BlockingIOError:
            return
        except ConnectionError:
            self._outgoing = memoryview(b"")

    def receive(self) -> bytes | None:
        """The next frame, or None as long as it is incomplete. EOFError once there is none, or
        what comes is none."""
        while (frame := self._take_frame()) is None:
            try:
                part = os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                return None
            except ConnectionError:
                part = b""
            if not part:
                raise EOFError
            self._incoming += part
        return frame

    def close(self) -> None:
        descriptors.close(self.descriptor)

    def _take_frame(self) -> bytes | None:
        if len(self._incoming) < HEADER.size:
            return None
        length = HEADER.unpack_from(self._incoming)[0]
        if length > _LONGEST:
            raise EOFError
        end = HEADER.size + length
        if len(self._incoming) < end:
            return None
        frame = bytes(self._incoming[HEADER.size : end])
        del self._incoming[:end]
        return frame
