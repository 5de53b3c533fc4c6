"""What a bench that stands before another one passes on."""

from __future__ import annotations

from typing import Self

from whet.core.config import Config
from whet.measure.bench.protocol import Bench


class AroundBench:
    """For a bench with another one in `_bench`; what measures is its own to say."""

    _bench: Bench

    @property
    def in_process(self) -> bool:
        return self._bench.in_process

    def forget(self, config: Config) -> None:
        self._bench.forget(config)

    def end_call(self) -> None:
        """From another thread; a kernel in this process cannot be ended."""
        end = getattr(self._bench, "end_call", None)
        if end is not None:
            end()

    def close(self) -> None:
        self._bench.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
