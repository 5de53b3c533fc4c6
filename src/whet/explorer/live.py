"""A store that is being written, as server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from whet.core.errors import WhetError
from whet.explorer.library import Library
from whet.store import StoreReader
from whet.store.growth import GrowthWatch

# How often the store is looked at, and how long a page is left alone after it was told something:
# drawing takes time of the machine that tunes. A sign of life now and then shows a reader gone.
PERIOD_S = 0.15
PAUSE_S = 0.75
SILENCE_S = 15.0


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
        return [_told(store, id, rows) for id, rows in grown.items()]


def _told(store: StoreReader, id: str, rows: int) -> dict[str, Any]:
    best = store.best(id)
    return {
        "workload": id,
        "rows_total": rows,
        "best": None if best is None else best.median_ns,
        "at": time.time(),
    }
