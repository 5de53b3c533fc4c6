"""The assembler of NVIDIA's binaries, of which torch's wheel and Triton's each bring one.

Inductor's workers take torch's, the process that asked them takes Triton's. The version is part of
every binary's key, so what the workers have built is not found, and each template is built again,
one after the other.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_CHOSEN = "TRITON_PTXAS_PATH"
_RELEASE = re.compile(r"release (\d+\.\d+)")


def use_one_ptxas() -> str:
    """Tells everybody to take torch's. Returns its path; empty where there is none, or somebody has
    chosen already."""
    own = torchs_ptxas()
    if own is None or _CHOSEN in os.environ:
        return ""
    os.environ[_CHOSEN] = str(own)
    return str(own)


def torchs_ptxas() -> Path | None:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    found = Path(torch.__file__ or "").parent / "bin" / "ptxas"
    return found if found.is_file() and os.access(found, os.X_OK) else None


def two_versions() -> tuple[str, str, str] | None:
    """The versions of the workers' and of this process's assembler, where they differ, and the
    path of the workers'."""
    theirs = torchs_ptxas()
    if theirs is None or _CHOSEN in os.environ:
        return None
    try:
        from triton import knobs

        ours = Path(knobs.nvidia.ptxas.path)
    except Exception:
        return None
    one, other = _version(theirs), _version(ours)
    return (one, other, str(theirs)) if one and other and one != other else None


def _version(assembler: Path) -> str:
    try:
        told = subprocess.run(
            [assembler, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    found = _RELEASE.search(told.stdout)
    return found[1] if found else ""
