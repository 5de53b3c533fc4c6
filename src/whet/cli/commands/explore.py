"""`whet explore`: results in the browser."""

from __future__ import annotations

import secrets
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.arguments.options import StoreOption
from whet.core.errors import UsageError, WhetError, install_extra

if TYPE_CHECKING:
    import socket

    from whet.explorer.library import Library

EXAMPLES = """\b
Examples:
  whet explore                       what is in the store, in the browser
  whet explore --sample              tables of an H200 that come with whet
  whet explore --table mine.whet.json.gz
  whet explore --no-open --port 8000 on a remote machine; forward the port
"""

DEFAULT_PORT = 8642
LOCAL = "127.0.0.1"
_LOCAL_HOSTS = (LOCAL, "localhost", "::1")


def explore(
    sample: Annotated[
        bool, typer.Option("--sample", help="Show the tables that come with whet, not the store.")
    ] = False,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="FILE|NAME",
            help="Also show a recorded table (repeatable).",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            min=0,
            max=65535,
            show_default=False,
            help=f"Port to listen on; 0 takes any free one (default: {DEFAULT_PORT}, or any free "
            "one).",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Address to listen on; any but this machine's own requires a token, which is "
            "printed.",
        ),
    ] = LOCAL,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    store: StoreOption = None,
) -> None:
    """Look at results in the browser."""
    from whet.cli.arguments.exploring import library_of

    check_installed()
    library = library_of(store, sample=sample, tables=table or ())
    serve_library(library, host=host, port=port, no_open=no_open)


def serve_library(
    library: Library,
    *,
    host: str = LOCAL,
    port: int | None = None,
    no_open: bool = False,
    link: str = "",
) -> None:
    """Until Ctrl-C; `link` is the part of the address that says what is looked at first."""
    from whet.explorer.server import make_app, serve

    token = None if host in _LOCAL_HOSTS else secrets.token_urlsafe(16)
    listening = _listening(host, port)
    address = _address(host, listening, token) + link
    if token is not None:
        print(
            "whet: note: other machines can reach it; whoever has the address with its token can "
            "read your results, and the connection is not encrypted",
            file=sys.stderr,
        )
    print("whet: Ctrl-C stops it", file=sys.stderr)
    print(f"the explorer is at {address}", flush=True)
    if not no_open:
        _open(address)
    threading.Thread(target=_prepare, args=(library,), daemon=True).start()
    serve(make_app(library, token), listening)


def _prepare(library: Library) -> None:
    """The list of workloads, while the browser starts; what is wrong with it the page will tell."""
    with suppress(WhetError):
        library.summaries()


def check_installed() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"the explorer needs {error.name}; install it with {install_extra('explorer')}, or "
            "write one file for the browser with 'whet report OUT.html', which needs nothing more"
        ) from None


def _listening(host: str, port: int | None) -> socket.socket:
    from whet.explorer.server import bound

    try:
        return bound(host, DEFAULT_PORT if port is None else port)
    except OSError as error:
        if port is None:
            return bound(host, 0)
        raise UsageError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another "
            "with --port, or 0 for any free one"
        ) from None


def _address(host: str, listening: socket.socket, token: str | None) -> str:
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    return address if token is None else f"{address}?token={token}"


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        print("whet: no browser could be opened; open the address yourself", file=sys.stderr)
