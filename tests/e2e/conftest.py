"""A browser and an explorer of the shipped tables, started once for all tests that want them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser import Tab, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with chromium() as one:
        yield one


@pytest.fixture(scope="session")
def sample() -> Iterator[str]:
    pytest.importorskip("starlette", reason="needs the extra explorer")
    pytest.importorskip("uvicorn", reason="needs the extra explorer")
    from explorer_server import running

    with running(sample=True) as url:
        yield url


@pytest.fixture
def tab(browser: Any) -> Iterator[Tab]:
    one = Tab(browser)
    yield one
    one.close()
    assert one.complaints == []
