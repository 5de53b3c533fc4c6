"""The page and its data over HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from whet.core.errors import WhetError
from whet.explorer import STATIC
from whet.explorer.answers import (
    Knobs,
    compare_json,
    frontier_json,
    run_json,
    runs_json,
    simulated_json,
    stage_text,
    strategies_json,
    timeline_json,
    trial_json,
)
from whet.explorer.guard import INERT, Guard
from whet.explorer.importance import importance
from whet.explorer.library import Library
from whet.explorer.subject import AbsentError, NotThereError, Subject
from whet.store import StoreReader
from whet.store.scanning import GrowthWatch

_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_BINARY = "application/octet-stream"

# How often the store is looked at, and how long a page is left alone after it was told something:
# drawing takes time of the machine that tunes. A sign of life now and then shows a reader gone.
PERIOD_S = 0.15
PAUSE_S = 0.75
SILENCE_S = 15.0


class AsciiJson(JSONResponse):
    """What is no character, as text from elsewhere may hold, is escaped as well."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")


Answer = Callable[[Library, Request], Response]


def make_app(library: Library, token: str | None = None) -> Starlette:
    def route(path: str, answer: Answer) -> Route:
        # A plain function runs in a thread of its own, so that reading a store delays nobody.
        return Route(path, partial(answer, library))

    assets = _Assets()
    return Starlette(
        routes=[
            Route("/", assets.index),
            Route("/static/{name}", assets.file),
            route("/api/about", lambda known, _: AsciiJson(known.about())),
            route("/api/workloads", lambda known, _: AsciiJson(known.summaries())),
            route("/api/workloads/{id}/columns", _columns),
            route("/api/workloads/{id}/trials/{row:int}", _trial),
            route("/api/workloads/{id}/trials/{row:int}/ir/{stage}", _ir),
            route("/api/workloads/{id}/journey", _journey),
            route("/api/workloads/{id}/runs", _runs),
            route("/api/workloads/{id}/importance", _importance),
            route("/api/workloads/{id}/search", _search),
            route("/api/runs/{id}/timeline", _timeline),
            route("/api/strategies", lambda *_: AsciiJson(strategies_json())),
            route("/api/frontier/{id}", _frontier),
            route("/api/compare", _compare),
            Route("/api/live", partial(_live, library)),
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
        app, log_level="critical", access_log=False, timeout_graceful_shutdown=1, lifespan="off"
    )
    uvicorn.Server(settings).run(sockets=[listening])


class _Assets:
    """The page's own files, in memory: a page asks for all of them before it can draw anything, and
    files that threads open and read take several times as long."""

    def __init__(self) -> None:
        self._files = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.is_file()}
        # All modules at once, and not one after another as their imports are read.
        modules = (name for name in self._files if name.endswith(".js"))
        self._link = ", ".join(f"<static/{name}>; rel=modulepreload" for name in modules)

    async def index(self, request: Request) -> Response:
        headers = {"link": self._link}
        return Response(self._files["index.html"], media_type="text/html", headers=headers)

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._files:
            raise NotThereError(f"there is no file '{name}'")
        return Response(self._files[name], media_type=_TYPES.get(Path(name).suffix))


def _columns(library: Library, request: Request) -> Response:
    first = _number(request, "from", 0)
    parts = _subject(library, request).encoded(first)
    size = sum(map(len, parts))
    return StreamingResponse(iter(parts), media_type=_BINARY, headers={"content-length": str(size)})


def _trial(library: Library, request: Request) -> Response:
    return AsciiJson(trial_json(_subject(library, request), request.path_params["row"]))


def _ir(library: Library, request: Request) -> Response:
    asked = request.path_params
    text = stage_text(_subject(library, request), asked["row"], asked["stage"])
    return PlainTextResponse(text.encode(errors="replace"))


def _journey(library: Library, request: Request) -> Response:
    page = _subject(library, request).journey()
    if page is None:
        raise NotThereError(
            "no journey was kept of this workload; of a model, 'whet doctor FILE.py:FUNCTION "
            "--report OUT.html' keeps one"
        )
    theme = request.query_params.get("theme")
    if theme in ("light", "dark"):
        page = page.replace(b"<html", f'<html style="color-scheme: {theme}"'.encode(), 1)
    return Response(page, media_type="text/html", headers=INERT)


def _runs(library: Library, request: Request) -> Response:
    return AsciiJson(runs_json(_subject(library, request)))


def _timeline(library: Library, request: Request) -> Response:
    run_id = request.path_params["id"]
    return AsciiJson(timeline_json(library.subject_of_run(run_id), run_id))


def _importance(library: Library, request: Request) -> Response:
    return AsciiJson(importance(_subject(library, request).read().columns))


def _search(library: Library, request: Request) -> Response:
    subject = _subject(library, request)
    asked = request.query_params
    if "run" in asked:
        return AsciiJson(run_json(subject, asked["run"]))
    strategy = asked.get("strategy", "auto")
    seed, budget = _number(request, "seed", 0), _number(request, "budget", 100)
    return AsciiJson(simulated_json(subject, strategy, seed, budget))


def _frontier(library: Library, request: Request) -> Response:
    asked, usual = request.query_params, Knobs()
    knobs = Knobs(
        draws=_number(request, "draws", usual.draws),
        runs=_number(request, "runs", usual.runs),
        compile_factor=_number(request, "compile_factor", usual.compile_factor),
        exec_ms=(
            _number(request, "exec_ms_low", int(usual.exec_ms[0])),
            _number(request, "exec_ms_high", int(usual.exec_ms[1])),
        ),
        most_configs=_number(request, "most_configs", usual.most_configs),
        searches=_searches(asked.get("search", "auto")),
        racing=asked.get("racing") == "1",
        all_keys=asked.get("all") == "1",
        seed=_number(request, "seed", usual.seed),
    )
    return AsciiJson(frontier_json(_subject(library, request), knobs))


def _searches(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()) not in ("", "none"))


def _compare(library: Library, request: Request) -> Response:
    a, b = (library.subject(request.query_params.get(name, "")) for name in "ab")
    return AsciiJson(compare_json(a, b))


async def _live(library: Library, request: Request) -> Response:
    return StreamingResponse(
        events(library, request.is_disconnected), media_type="text/event-stream"
    )


def _subject(library: Library, request: Request) -> Subject:
    return library.subject(request.path_params["id"])


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise NotThereError(f"{name} is '{text}', which is not a whole number")
    return int(text)


async def _told(request: Request, error: Exception) -> Response:
    if isinstance(error, AbsentError):
        return AsciiJson({"absent": str(error)})
    status = 404 if isinstance(error, NotThereError) else 500
    return AsciiJson({"error": str(error)}, status_code=status)


async def _not_there(request: Request, error: Exception) -> Response:
    answer: dict[str, Any] = {"error": f"there is nothing at {request.url.path}"}
    return AsciiJson(answer, status_code=404)


async def events(library: Library, gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
    watched = _Watched(library)
    await asyncio.to_thread(watched.news)  # from here on nothing is missed
    yield ": the explorer is watching\n\n"
    said = time.monotonic()
    while not await gone():
        news = await asyncio.to_thread(watched.news)
        for told in news:
            yield f"data: {json.dumps(told)}\n\n"
        if not news and time.monotonic() - said > SILENCE_S:
            yield ": still here\n\n"
            news = [{}]
        if news:
            said = time.monotonic()
        await asyncio.sleep(PAUSE_S if news else PERIOD_S)


class _Watched:
    """Whichever store is at the place that the library looks at."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._store: StoreReader | None = None
        self._watch: GrowthWatch | None = None

    def news(self) -> list[dict[str, Any]]:
        try:
            return self._news()
        except WhetError as error:  # the store may be in the middle of being replaced
            return [{"workload": None, "error": str(error)}]

    def _news(self) -> list[dict[str, Any]]:
        store = self._library.store
        if store is None:
            return []
        if store is not self._store or self._watch is None:
            fresh = self._watch is not None
            self._store, self._watch = store, GrowthWatch(store)
            return [{"workload": None}] if fresh else []
        grown = self._watch.changes()
        if grown is None:
            return []
        if not grown:
            return [{"workload": None}]
        return [_growth_json(store, id, rows) for id, rows in grown.items()]


def _growth_json(store: StoreReader, id: str, rows: int) -> dict[str, Any]:
    best = store.best(id)
    return {
        "workload": id,
        "rows_total": rows,
        "best": None if best is None else best.median_ns,
        "at": time.time(),
    }
