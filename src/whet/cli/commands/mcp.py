"""`whet mcp`: a server of the Model Context Protocol on stdin and stdout."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from whet.cli.arguments.options import (
    BUDGETS,
    StoreOption,
    argument,
    option,
    pass_on,
    read_keys,
    resolved,
)
from whet.core.budget import Budget
from whet.core.errors import UsageError, did_you_mean, install_extra

if TYPE_CHECKING:
    from whet.mcp.allowance import Allowance


def mcp(
    tunables: Annotated[
        list[str] | None,
        argument("FILE.py:NAME", "What agents may tune, with --allow tune; as for 'whet tune'."),
    ] = None,
    allow: Annotated[
        str | None,
        option("--allow tune", "What agents may do besides reading: tune (default: nothing)."),
    ] = None,
    budget: Annotated[
        str | None,
        option("--budget BUDGET", f"For all tunings of this server together. {BUDGETS}"),
    ] = None,
    key: Annotated[
        list[str] | None,
        option("--key M=64,N=32", "A key to tune, for Triton kernels (repeatable)."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Serve results to agents, over the Model Context Protocol.

    Speaks the protocol on stdin and stdout, and ends when stdin does. Agents can list and explain
    results, read costs, failures and intermediate code, ask for suggestions and export. They write
    nothing, and nothing that a store names is run. With --allow tune they can tune what is named
    here, within the budget; it cannot be raised from within. Needs the extra mcp.

    Examples:
      whet mcp                             read the default store
      whet mcp --store team.db             read another one
      whet mcp kernel.py:blur --allow tune --budget 10m
      claude mcp add whet -- whet mcp      with a client that starts it
    """
    allowed = _allowed(allow)
    given = Budget.parse(budget)
    if "tune" in allowed and (not tunables or not given.bounded):
        raise UsageError(
            "--allow tune needs what to tune and a --budget: "
            "whet mcp kernel.py:blur --allow tune --budget 10m"
        )
    if "tune" not in allowed and (tunables or budget or key):
        raise UsageError("FILE.py:NAME, --budget and --key are for --allow tune")
    read_keys(key or (), None)
    settings = resolved(store=store).settings
    try:
        import whet.mcp.server  # noqa: F401
        from whet.mcp.allowance import Allowance
    except ImportError as error:
        raise UsageError(f"the server needs the extra mcp: {install_extra('mcp')}") from error
    pass_on(store)
    allowance = Allowance(tuple(tunables or ()), tuple(key or ()), given)
    _serve(settings.store, settings.bundle, allowance)


def _allowed(text: str | None) -> set[str]:
    # The only one so far; `--allow tune,…` is how others will be typed.
    known = ("tune",)
    names = {name.strip() for name in (text or "").split(",") if name.strip()}
    for name in sorted(names - set(known)):
        raise UsageError(f"--allow {name} is not something to allow{did_you_mean(name, known)}")
    return names


def _serve(store: str | None, bundle: str | None, allowance: Allowance) -> None:
    import anyio

    from whet.explorer.library import Library, StorePlace
    from whet.mcp.server import make_server

    if sys.stdin.isatty():
        print("whet mcp: waiting for a client on stdin; Ctrl-D ends it", file=sys.stderr)
    server = make_server(Library(StorePlace(store, bundle)), allowance)
    try:
        anyio.run(server.run_stdio_async)
    except* (BrokenPipeError, ConnectionResetError):
        pass  # the client has gone
