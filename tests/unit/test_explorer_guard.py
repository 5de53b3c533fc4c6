"""Who may talk to a running explorer."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from explorer_samples import HOSTILE, fill, hostile, trial, workload

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from whet.explorer import STATIC
from whet.explorer.library import Library
from whet.explorer.server import make_app
from whet.store import SqliteStore
from whet.store.scanning import journey_file

LOCAL = {"host": "127.0.0.1:8642"}


def _get(
    library: Library,
    path: str,
    headers: dict[str, str],
    token: str | None = None,
    method: str = "GET",
) -> tuple[int, dict[str, str], bytes]:
    """One request, by the protocol between a server and its application."""
    path, _, query = path.partition("?")
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "server": ("127.0.0.1", 8642),
        "client": ("127.0.0.1", 5),
    }
    # In a thread of its own: a browser that another test has open keeps a loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, make_app(library, token)(scope, receive, send)).result()
    start = next(one for one in sent if one["type"] == "http.response.start")
    body = b"".join(one.get("body", b"") for one in sent if one["type"] == "http.response.body")
    return start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, body


@pytest.fixture
def library(tmp_path: Path) -> Library:
    store = SqliteStore(tmp_path / "s.db")
    fill(store)
    return Library(store)


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "localhost", "LOCALHOST:1", "[::1]:8642"])
def test_this_machine_is_answered(library: Library, host: str) -> None:
    status, _, body = _get(library, "/api/about", {"host": host})
    assert status == 200
    assert json.loads(body)["live"] is True


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8642",
        "evil.example:8642",
        "192.168.0.7:8642",
        "127.0.0.1@evil.example",
        "",
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(library: Library, host: str) -> None:
    status, _, body = _get(library, "/api/workloads", {"host": host})
    assert status in (400, 403)
    assert b"matmul" not in body


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    ],
)
def test_another_sites_page_is_refused(library: Library, headers: dict[str, str]) -> None:
    status, _, body = _get(library, "/api/workloads", {**LOCAL, **headers})
    assert status == 403
    assert b"matmul" not in body


def test_its_own_page_and_a_link_from_elsewhere_are_answered(library: Library) -> None:
    own = {**LOCAL, "origin": "http://127.0.0.1:8642", "sec-fetch-site": "same-origin"}
    assert _get(library, "/api/workloads", own)[0] == 200
    link = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    assert _get(library, "/api/about", {**LOCAL, **link})[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(library: Library, method: str) -> None:
    assert _get(library, "/api/workloads", LOCAL, method=method)[0] == 405


def test_every_answer_forbids_what_the_page_does_not_need(library: Library) -> None:
    for path in ("/api/about", "/api/nothing", "/api/workloads/x/columns"):
        _, headers, _ = _get(library, path, LOCAL)
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers


def test_bound_elsewhere_it_wants_the_token(library: Library) -> None:
    far = {"host": "gpu7.lab:8642"}
    assert _get(library, "/api/about", far, token="secret")[0] == 401
    assert _get(library, "/api/about?token=wrong", far, token="secret")[0] == 401
    status, headers, _ = _get(library, "/api/about?token=secret", far, token="secret")
    assert status == 200
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    kept = {**far, "cookie": cookie.partition(";")[0]}
    assert _get(library, "/api/about", kept, token="secret")[0] == 200
    assert _get(library, "/api/about", LOCAL, token="secret")[0] == 401


@pytest.mark.medium
def test_text_from_a_store_is_never_a_page(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as store:
        of = hostile(store)
        library = Library(store)
        for path in ("/api/workloads", f"/api/workloads/{of.id}/trials/1"):
            _, headers, body = _get(library, path, LOCAL)
            assert headers["content-type"] == "application/json"
            assert HOSTILE in json.dumps(json.loads(body), ensure_ascii=False).replace('\\"', '"')
        _, headers, _ = _get(library, f"/api/workloads/{of.id}/columns", LOCAL)
        assert headers["content-type"] == "application/octet-stream"


def _kept_journey(library: Library, text: str) -> str:
    """Where the explorer answers with it."""
    (line,) = library.summaries()
    assert library.store is not None
    path = journey_file(library.store, line["id"])
    assert path is not None
    path.parent.mkdir()
    path.write_text(text)
    return f"/api/workloads/{line['id']}/journey"


def test_a_journey_that_was_kept_is_a_page_in_which_nothing_runs(library: Library) -> None:
    place = _kept_journey(library, "<h1>m</h1><script>alert(1)</script>")
    status, headers, body = _get(library, place, LOCAL)
    assert (status, body) == (200, b"<h1>m</h1><script>alert(1)</script>")
    policy = headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "sandbox", "frame-ancestors 'self'"} <= set(policy)
    assert headers["x-frame-options"] == "SAMEORIGIN"
    assert headers["x-content-type-options"] == "nosniff"


def test_a_workload_says_whether_a_journey_of_it_was_kept(library: Library) -> None:
    (line,) = library.summaries()
    assert line["journey"] is False
    status, headers, body = _get(library, f"/api/workloads/{line['id']}/journey", LOCAL)
    assert status == 404
    assert b"whet doctor" in body
    assert "default-src 'self'" in headers["content-security-policy"]
    _kept_journey(library, "later")
    assert library.summaries()[0]["journey"] is True


@pytest.mark.medium
def test_only_the_page_is_served_and_all_its_modules_are_asked_for_at_once(
    library: Library,
) -> None:
    status, headers, body = _get(library, "/", LOCAL)
    assert (status, b'src="static/main.js"' in body) == (200, True)
    assert headers["content-type"].startswith("text/html")
    for path in STATIC.glob("*.js"):
        assert f"<static/{path.name}>; rel=modulepreload" in headers["link"]
        status, told, body = _get(library, f"/static/{path.name}", LOCAL)
        assert (status, body) == (200, path.read_bytes())
        assert told["content-type"].startswith("text/javascript")
    others = ("nothing.js", "../server.py", "%2e%2e/server.py", "/etc/passwd", "__init__.py", "")
    for place in (*(f"/static/{name}" for name in others), "/etc/passwd"):
        assert _get(library, place, LOCAL)[0] == 404


@pytest.mark.medium
@pytest.mark.parametrize("query", ["from=-1", "from=x", "from=1e9", "from=9999999999", "from=²"])
def test_what_is_no_number_is_refused(library: Library, query: str) -> None:
    (line,) = library.summaries()
    status, _, body = _get(library, f"/api/workloads/{line['id']}/columns?{query}", LOCAL)
    assert status == 404
    assert b"not a whole number" in body


@pytest.mark.medium
def test_text_that_is_no_text_is_still_told(tmp_path: Path) -> None:
    odd = "half a pair: \ud800"
    with SqliteStore(tmp_path / "s.db") as store:
        of = workload("matmul")
        store.put_workload(of)
        store.append([trial(of, {odd: odd, "n": n}, 100.0 + n) for n in range(9)])
        library = Library(store)
        for path in ("", f"/{of.id}/trials/0", f"/{of.id}/importance", f"/{of.id}/search"):
            status, _, body = _get(library, f"/api/workloads{path}", LOCAL)
            assert status == 200
            json.loads(body)
        assert _get(library, f"/api/workloads/{of.id}/columns", LOCAL)[0] == 200
