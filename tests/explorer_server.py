"""A running explorer for tests: `with running(sample=True) as url: …`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(
    store: str | Path | None = None, *, sample: bool = False, arguments: Sequence[str] = ()
) -> Iterator[str]:
    """The address, without a slash at its end, of an explorer on a free port."""
    command = [sys.executable, "-m", "whet", "explore", "--no-open", "--port", "0"]
    command += ["--sample"] if sample else []
    command += [] if store is None else ["--store", str(store)]
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "http" in line, f"the explorer did not start: {line!r}"
        yield line.split()[-1].rstrip("/")
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
