"""The command line: one file a command. Results on stdout, progress and errors on stderr."""

from whet.cli.app import main

__all__ = ["main"]
