"""What the variables ask for: WHET_JIT=record|warn|error, WHET_PRELOAD=FILE[:FILE…]."""

from __future__ import annotations

import os

from whet.core.errors import WhetError
from whet.engine.settings import resolve_settings
from whet.targets.triton.jit.preloading import preload_at_first_call
from whet.targets.triton.jit.recording import start_recording
from whet.targets.triton.jit.records import Records, watch_libraries
from whet.targets.triton.jit.sealing import remember
from whet.targets.triton.warn import say_once

_MODES = ("", "off", "record", "warn", "error")


def begin(mode: str, bundles: str) -> None:
    """Never raises: it runs while Triton is being imported."""
    try:
        if mode not in _MODES:
            say_once(f"WHET_JIT={mode} is not valid; use record, warn, error or off")
        if mode == "record":
            records = Records.beside(resolve_settings().settings.store)
            watch_libraries(records)
            start_recording(records)
        if mode in ("warn", "error"):
            remember()
        if bundles:
            preload_at_first_call(bundles.split(os.pathsep))
    except Exception as error:
        said = str(error) if isinstance(error, WhetError) else f"{type(error).__name__}: {error}"
        say_once(f"WHET_JIT and WHET_PRELOAD have no effect: {said}")
