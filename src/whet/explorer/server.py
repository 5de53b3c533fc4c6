"""The page and its data over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from whet.core.errors import WhetError
from whet.explorer.guard import Guard
from whet.explorer.library import Library
from whet.explorer.subject import NotThereError, Subject

STATIC = Path(__file__).parent / "static"
_BINARY = "application/octet-stream"

Answer = Callable[[Library, Request], Response]


def make_app(library: Library, token: str | None = None) -> Starlette:
    def route(path: str, answer: Answer) -> Route:
        # A plain function runs in a thread of its own, so that reading a store delays nobody.
        return Route(path, lambda request: answer(library, request))

    return Starlette(
        routes=[
            Route("/", _index),
            route("/api/about", lambda known, _: JSONResponse(known.about())),
            route("/api/workloads", lambda known, _: JSONResponse(known.summaries())),
            route("/api/workloads/{id}/columns", _columns),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(Guard, token=token)],
        exception_handlers={WhetError: _told, 404: _not_there},
    )


def bound(host: str, port: int) -> socket.socket:
    """Listens; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def serve(app: Starlette, listening: socket.socket) -> None:
    """Until Ctrl-C."""
    settings = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=1, lifespan="off"
    )
    uvicorn.Server(settings).run(sockets=[listening])


def _index(request: Request) -> Response:
    return FileResponse(STATIC / "index.html")


def _columns(library: Library, request: Request) -> Response:
    first = _number(request, "from", 0)
    parts = _subject(library, request).encoded(first)
    size = sum(map(len, parts))
    return StreamingResponse(iter(parts), media_type=_BINARY, headers={"content-length": str(size)})


def _subject(library: Library, request: Request) -> Subject:
    return library.subject(request.path_params["id"])


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise NotThereError(f"{name} is '{text}', which is not a whole number")
    return int(text)


async def _told(request: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, NotThereError) else 500
    return JSONResponse({"error": str(error)}, status_code=status)


async def _not_there(request: Request, error: Exception) -> Response:
    answer: dict[str, Any] = {"error": f"there is nothing at {request.url.path}"}
    return JSONResponse(answer, status_code=404)
