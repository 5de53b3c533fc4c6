"""The example that the demo tunes."""

from __future__ import annotations

from pathlib import Path

import whet
from whet.core.errors import WhetError


def example_file(name: str) -> Path:
    """The example as it was installed with the package, or as it lies in a checkout."""
    package = Path(whet.__file__).resolve().parent
    for root in (package, package.parents[1]):
        path = root / "examples" / "matmul" / name
        if path.is_file():
            return path
    raise WhetError(f"examples/matmul/{name} is missing; reinstall whet")
