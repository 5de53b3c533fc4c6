"""`whet explore`: results in the browser."""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.arguments.options import QuietOption, StoreOption, argument, option, resolved
from whet.cli.arguments.reading import check_there
from whet.cli.terminal.countdown import Countdown
from whet.cli.terminal.help import refuse_others
from whet.cli.terminal.output import bytes_text, count_text
from whet.core.errors import UsageError, WhetError, did_you_mean, install_extra

if TYPE_CHECKING:
    import socket

    from whet.explorer.library import Library
    from whet.explorer.subject import Subject

DEFAULT_PORT = 8642
LOCAL = "127.0.0.1"
_LOCAL_HOSTS = (LOCAL, "localhost", "::1")


def explore(
    context: typer.Context,
    kernels: Annotated[
        list[str] | None,
        argument(
            "KERNEL", "With --out: kernel names, or the start of workload ids (default: all)."
        ),
    ] = None,
    sample: Annotated[
        bool, option("--sample", "Results that come with whet, not the store.")
    ] = False,
    table: Annotated[
        list[str] | None, option("--table FILE|NAME", "Also a recorded table (repeatable).")
    ] = None,
    against: Annotated[
        str | None, option("--against STORE", "Another store, to compare this one with.")
    ] = None,
    out: Annotated[
        str | None, option("--out FILE.html", "Write one file that needs no server and no network.")
    ] = None,
    quiet: QuietOption = False,
    port: Annotated[
        int | None,
        option(
            "--port N",
            f"Port to listen on; 0 takes any free one (default: {DEFAULT_PORT}, or any free one).",
            min=0,
            max=65535,
            panel="the server",
        ),
    ] = None,
    host: Annotated[
        str,
        option(
            "--host ADDRESS",
            "Address to listen on; any but this machine's own requires a token, which is printed.",
            "the server",
        ),
    ] = LOCAL,
    no_open: Annotated[bool, option("--no-open", "Do not open the browser.", "the server")] = False,
    store: StoreOption = None,
) -> None:
    """Look at results in the browser, or write them to one HTML file.

    The file has the same views, and opens from disk.

    Examples:
      whet explore                       what is in the store, in the browser
      whet explore --sample              results that come with whet
      whet explore --table mine.whet.json.gz
      whet explore --no-open --port 8000 on a remote machine; forward the port
      whet explore --out out.html        everything in the store, in one file
      whet explore --out out.html matmul one kernel
      whet explore --against before.db   what became slower, in the view Compare
    """
    if out is not None:
        refuse_others(context, "a file")
        _write(out, kernels or (), library_of(store, sample, table or (), against), quiet)
        return
    if kernels:
        raise UsageError("KERNEL is for --out FILE.html; the explorer shows every kernel")
    check_installed()
    library = library_of(store, sample, table or (), against)
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
            "write one file for the browser with 'whet explore --out OUT.html', which needs "
            "nothing more"
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


def _write(out: str, kernels: Sequence[str], library: Library, quiet: bool) -> None:
    from whet.explorer.report import write_report

    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{out} must end in .html")
    chosen = _chosen(library, kernels)
    size = write_report(library, path, chosen, None if quiet else Countdown("parts"))
    workloads = count_text(len(chosen), "workload")
    print(f"wrote {out}: {workloads}, {bytes_text(size)}; open it in any browser")


def _chosen(library: Library, kernels: Sequence[str]) -> list[Subject]:
    every = library.subjects()
    if not every:
        raise UsageError(
            f"nothing to report: {library.about()['store']} has no results; tune something first, "
            "or use --sample"
        )
    names = {subject.workload.kernel for subject in every}
    for wanted in kernels:
        if wanted not in names and not any(one.id.startswith(wanted) for one in every):
            raise UsageError(
                f"no results for kernel or workload '{wanted}'{did_you_mean(wanted, names)}"
            )
    if not kernels:
        return every
    return [
        one
        for one in every
        if one.workload.kernel in kernels or any(one.id.startswith(wanted) for wanted in kernels)
    ]


def library_of(
    store: str | None,
    sample: bool = False,
    tables: Sequence[str] = (),
    against: str | None = None,
) -> Library:
    """The store, unless a sample is asked for, and tables. There need not be a store yet."""
    from whet.explorer import SAMPLE
    from whet.explorer.library import Library, StorePlace
    from whet.replay import read_table, shipped
    from whet.store import open_store

    named = {name: name for name in [*(shipped() if sample else ()), *tables]}
    if sample:
        named |= {path.name.partition(".")[0]: str(path) for path in sorted(SAMPLE.glob("*.gz"))}
    found = {name: read_table(path) for name, path in named.items()}
    if sample and store is None:
        return Library(StorePlace(str(SAMPLE / "store.db")), found, is_sample=True)
    settings = resolved(store=store).settings
    other = None
    if against is not None:
        check_there(against)
        other = open_store(against, read_only=True, direct=True)
    return Library(StorePlace(settings.store, settings.bundle), found, other)
