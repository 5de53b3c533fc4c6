"""Who may talk to a running explorer: pages of its own, on this machine or with the token."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
