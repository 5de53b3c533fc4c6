"""The command line: one file a command. Results on stdout, progress and errors on stderr."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["INTERRUPTED", "main"]

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Imports the commands only now: a printed result and a display need none of them, and Ctrl-C
    meanwhile is to end as it does later."""
    try:
        from whet.cli import app
    except KeyboardInterrupt:
        return INTERRUPTED
    return app.main(arguments)
