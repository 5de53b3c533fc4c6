"""What a kernel call finds around it: a stream, a store, somebody to talk to."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

from whet.core.errors import WhetError
from whet.engine.settings import Settings
from whet.store import MemoryStore, Store, open_store

_said: set[str] = set()


def say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def capturing() -> bool:
    """Whether the current stream records a CUDA graph, in which nothing can be timed."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def opened(settings: Settings) -> Store:
    """A store that cannot be used must not stop a kernel from running."""
    try:
        return open_store(settings.store)
    except WhetError as error:
        say_once(f"whet does not remember: {error}")
        return MemoryStore()


def temporary() -> Path:
    return Path(tempfile.gettempdir()) / "whet"
