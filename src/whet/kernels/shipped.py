"""Results that come with the package: on the GPUs they are for, nothing needs tuning."""

from __future__ import annotations

from pathlib import Path

from whet.targets.triton.stores import ship

RESULTS = Path(__file__).with_name("results")


def use_shipped_results() -> None:
    """They lie under the user's own, and hold for the versions of torch and Triton they were
    measured with."""
    for bundle in sorted(RESULTS.glob("*.whet")):
        ship(bundle)
