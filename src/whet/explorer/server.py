"""The page and its data over HTTP, for pages of its own, on this machine or with the token."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whet.core.errors import WhetError
from whet.explorer import STATIC
from whet.explorer.answers import (
    Knobs,
    facts_json,
    frontier_json,
    run_json,
    runs_json,
    simulated_json,
    stage_text,
    strategies_json,
    timeline_json,
    trial_json,
)
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

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
COOKIE = "whet_token"

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/@\s]+)(:\d{1,5})?")

# Nothing from outside, nothing inline, in nobody's frame, readable by nobody else's page.
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}

# For a page that was kept as a file, shown in a frame of the explorer's own: it may have styles,
# and nothing in it can run, fetch or lead anywhere.
INERT = {
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'self'; sandbox"
    ),
    "x-frame-options": "SAMEORIGIN",
}


class AsciiJson(JSONResponse):
    """What is no character, as text from elsewhere may hold, is escaped as well."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")


Answer = Callable[[Library, Request], Response]


def make_app(library: Library, token: str | None = None) -> Starlette:
    def route(path: str, answer: Answer) -> Route:
        # A plain function runs in a thread of its own, so that reading a store delays nobody.
        return Route(path, partial(answer, library))

    def of_subject(path: str, answer: Callable[[Subject, Request], Response]) -> Route:
        return route(
            path, lambda known, asked: answer(known.subject(asked.path_params["id"]), asked)
        )

    assets = _Assets()
    return Starlette(
        routes=[
            Route("/", assets.index),
            Route("/static/{name}", assets.file),
            route("/api/about", lambda known, _: AsciiJson(known.about())),
            route("/api/workloads", lambda known, _: AsciiJson(known.summaries())),
            of_subject("/api/workloads/{id}/columns", _columns),
            of_subject("/api/workloads/{id}/trials/{row:int}", _trial),
            of_subject("/api/workloads/{id}/trials/{row:int}/ir/{stage}", _ir),
            of_subject("/api/workloads/{id}/journey", _journey),
            of_subject("/api/workloads/{id}/runs", lambda one, _: AsciiJson(runs_json(one))),
            of_subject("/api/workloads/{id}/facts", lambda one, _: AsciiJson(facts_json(one))),
            of_subject("/api/workloads/{id}/importance", _importance),
            of_subject("/api/workloads/{id}/search", _search),
            route("/api/runs/{id}/timeline", _timeline),
            route("/api/strategies", lambda *_: AsciiJson(strategies_json())),
            of_subject("/api/frontier/{id}", _frontier),
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


def _columns(subject: Subject, request: Request) -> Response:
    parts = subject.encoded(_number(request, "from", 0))
    size = sum(map(len, parts))
    return StreamingResponse(iter(parts), media_type=_BINARY, headers={"content-length": str(size)})


def _trial(subject: Subject, request: Request) -> Response:
    return AsciiJson(trial_json(subject, request.path_params["row"]))


def _ir(subject: Subject, request: Request) -> Response:
    text = stage_text(subject, request.path_params["row"], request.path_params["stage"])
    return PlainTextResponse(text.encode(errors="replace"))


def _journey(subject: Subject, request: Request) -> Response:
    page = subject.journey()
    if page is None:
        raise NotThereError(
            "no journey was kept of this workload; of a model, 'whet doctor FILE.py:FUNCTION "
            "--report OUT.html' keeps one"
        )
    theme = request.query_params.get("theme")
    if theme in ("light", "dark"):
        page = page.replace(b"<html", f'<html style="color-scheme: {theme}"'.encode(), 1)
    return Response(page, media_type="text/html", headers=INERT)


def _timeline(library: Library, request: Request) -> Response:
    run_id = request.path_params["id"]
    return AsciiJson(timeline_json(library.subject_of_run(run_id), run_id))


def _importance(subject: Subject, request: Request) -> Response:
    return AsciiJson(importance(subject.read().columns))


def _search(subject: Subject, request: Request) -> Response:
    asked = request.query_params
    if "run" in asked:
        return AsciiJson(run_json(subject, asked["run"]))
    strategy = asked.get("strategy", "auto")
    seed, budget = _number(request, "seed", 0), _number(request, "budget", 100)
    return AsciiJson(simulated_json(subject, strategy, seed, budget))


def _frontier(subject: Subject, request: Request) -> Response:
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
    return AsciiJson(frontier_json(subject, knobs))


def _searches(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()) not in ("", "none"))


async def _live(library: Library, request: Request) -> Response:
    told = events(library, request.is_disconnected)
    return StreamingResponse(told, media_type="text/event-stream")


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


@dataclass(frozen=True)
class RequestRefused(Exception):
    status: int
    reason: str


class Guard:
    """Checks every request before anything else sees it. Without a `token`, the name that a
    browser was given must be one of this machine: a stranger's domain that was made to point here
    is refused. With one, whoever has it is let in, under any name."""

    def __init__(self, app: ASGIApp, token: str | None = None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        given = ""

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                extra = [
                    (name.encode(), value.encode())
                    for name, value in HEADERS.items()
                    if name.encode() not in own
                ]
                if given:
                    cookie = f"{COOKIE}={given}; Path=/; HttpOnly; SameSite=Strict"
                    extra.append((b"set-cookie", cookie.encode()))
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        try:
            given = self._check(scope)
        except RequestRefused as refused:
            answer = JSONResponse({"error": refused.reason}, status_code=refused.status)
            await answer(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _check(self, scope: Scope) -> str:
        """The token where the address had it, so that it need not have it again."""
        if scope["method"] not in ("GET", "HEAD"):
            raise RequestRefused(405, "the explorer only answers GET")
        headers = _headers(scope)
        host = headers.get("host", "")
        match = _HOST.fullmatch(host)
        if match is None:
            raise RequestRefused(400, "the Host header is missing or not valid")
        if self._token is None and match[1].lower() not in LOCAL_NAMES:
            raise RequestRefused(
                403, f"this explorer is only for this machine, not for '{match[1]}'"
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise RequestRefused(403, "the request comes from another site")
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not _opens(headers):
            raise RequestRefused(403, "the request comes from another site")
        return "" if self._token is None else self._authorised(scope, headers, self._token)

    def _authorised(self, scope: Scope, headers: dict[str, str], token: str) -> str:
        named = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if hmac.compare_digest(named.encode(), token.encode()):
            return token
        try:
            kept = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            kept = None
        if kept is not None and hmac.compare_digest(kept.value.encode(), token.encode()):
            return ""
        raise RequestRefused(401, "open the address with the token that 'whet explore' has printed")


def _opens(headers: dict[str, str]) -> bool:
    """A link on another page may lead here; nothing on that page may read it."""
    return (
        headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    )


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
