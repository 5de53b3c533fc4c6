"""The command line: one file a command. Results on stdout, progress and errors on stderr."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Imports the commands only now: a printed result and a display need none of them."""
    from whet.cli.app import main

    return main(arguments)


__all__ = ["main"]
