"""A store of recorded results, and an agent that asks a server about them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

from mcp import Client

from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Run
from whet.core.status import Status
from whet.core.trial import Trial
from whet.explorer.library import Library, StorePlace
from whet.mcp.allowance import Allowance
from whet.mcp.server import make_server
from whet.replay import read_table
from whet.replay.lab import Case, cases_of
from whet.store import open_store

TABLE = "h200-gemm-576"
LOOKED_AT = 60


def cases() -> list[Case]:
    return cases_of(TABLE, read_table(TABLE), 9)


def stored(path: Path, kept: list[Case], looked_at: int | None = None) -> str:
    """A store with these workloads, each with a run that has chosen the fastest."""
    with open_store(str(path)) as store:
        for case in kept:
            workload = case.table.described(case.workload)
            trials = case.trials[:looked_at]
            works = [trial for trial in trials if trial.status is Status.OK]
            best = min(works, key=lambda trial: trial.median_ns or 0.0)
            run = Run(
                workload=workload,
                space_id=case.space.id,
                space_size=case.space.count,
                search="auto",
                seed=0,
                outcome=Outcome.FINISHED,
                first=trials[0].config,
                best=best.config,
                trials=len(trials),
                tried=len(trials),
                started=1e9,
            )
            store.save_run(run)
            store.append(
                Trial(
                    workload.id,
                    trial.config,
                    trial.status,
                    trial.timing,
                    facts=FrozenMap({"registers": 168, "shared_bytes": 98304, "spills": 0}),
                    error=trial.error,
                    run_id=run.id,
                )
                for trial in trials
            )
    return str(path)


Call = Callable[..., Awaitable[Any]]


def ask(store: str | None, talk: Callable[[Call], Awaitable[Any]], allowance: Any = None) -> Any:
    """`talk(call)` with a server in this process; `call("list_kernels", limit=3)` is its answer, a
    text where it is an error."""

    async def main() -> Any:
        library = Library(StorePlace(store))
        async with Client(make_server(library, allowance or Allowance())) as client:

            async def call(tool: str, **arguments: Any) -> Any:
                found = await client.call_tool(tool, arguments)
                text = found.content[0].text  # type: ignore[union-attr]
                if found.is_error:
                    return text
                assert text.isascii()
                return json.loads(text)

            call.client = client  # type: ignore[attr-defined]
            return await talk(call)

    return in_a_loop(main)


def in_a_loop(talk: Callable[[], Awaitable[Any]]) -> Any:
    """In a thread of its own: a browser that another test has open keeps a loop running in this
    one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(anyio.run, talk).result()


def answer(store: str | None, tool: str, **arguments: Any) -> Any:
    told = ask(store, lambda call: call(tool, **arguments))
    assert not isinstance(told, str), told
    return told


def complaint(store: str | None, tool: str, **arguments: Any) -> str:
    told = ask(store, lambda call: call(tool, **arguments))
    assert isinstance(told, str)
    return told
