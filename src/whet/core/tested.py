"""The newest versions that whet's tests have passed with, of packages whose private parts it uses.
Newer ones are not refused: most work. Whoever runs one is told once."""

from __future__ import annotations

import re
import warnings

from whet._version import __version__

TESTED = {"torch": "2.13", "triton": "3.9", "ray": "2.60"}

_said: set[str] = set()


def check_tested(package: str, version: str) -> None:
    """Warns once where it is newer than what was tested; patch releases are not."""
    found = re.match(r"(\d+)\.(\d+)", version)
    newest = tuple(map(int, TESTED[package].split(".")))
    if found is None or (int(found[1]), int(found[2])) <= newest or package in _said:
        return
    _said.add(package)
    after = f"{newest[0]}.{newest[1] + 1}"
    warnings.warn(
        f"{package} {version} is newer than {TESTED[package]}, the newest that whet {__version__} "
        f"was tested with; if something fails, upgrade whet, or pip install '{package}<{after}'",
        RuntimeWarning,
        stacklevel=3,
    )
