"""A server's process and whet's commands, run as a user would."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess[str]]

FRESH: Run = functools.partial(subprocess.run, capture_output=True, text=True)
"""Runs Python as a user does; `ForkServer.run` does the same with Triton imported already."""


def output_in(
    folder: Path, command: list[str], variables: Mapping[str, str], run: Run = FRESH
) -> str:
    """What Python prints for a command, with the store of the folder and an empty Triton cache."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("WHET_")}
    cache = folder / f"triton{len(list(folder.glob('triton*')))}"
    cache.mkdir()
    ran = run(
        [sys.executable, *command],
        cwd=folder,
        env={
            **kept,
            "TRITON_CACHE_DIR": str(cache),
            "TRITON_DEFAULT_FP_FUSION": "1",
            "WHET_STORE": str(folder / "store.db"),
            "PYTHONPATH": os.pathsep.join(sys.path),
            **variables,
        },
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
