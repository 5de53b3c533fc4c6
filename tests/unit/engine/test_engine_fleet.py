"""The example of docs/fleet.md: two machines that tune, one that promotes, ten that serve."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import whet
from postgres_server import USER, PostgresServer
from whet.core.run import Result
from whet.engine.settings import Settings
from whet.store import Store, open_store
from whet.store.postgres.address import parse_address, with_trust
from whet.store.postgres.schema import grant
from whet.store.postgres.verified import promote
from whet.store.upkeep import init_store, promotable

pytestmark = pytest.mark.medium

KEYS = (1, 2, 3)


def target(key: int) -> Any:
    def slow(step: int) -> None:
        time.sleep(0.001 * step)

    return whet.function(slow, {"step": [1, 2, 3]}, key={"M": key}, name="slow", isolate=False)


@pytest.mark.slow
def test_two_machines_tune_one_promotes_and_ten_serve(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    owner = own_postgres.url("kernels")
    init_store(owner)
    for level in ("contributor", "promoter", "reader"):
        own_postgres.sql(f"CREATE ROLE {level} LOGIN")
        grant(parse_address(owner), level, level)

    def machine(name: str, level: str, **how: Any) -> Store:
        url = owner.replace(f"{USER}@", f"{level}@")
        if level == "reader":
            url = with_trust(url, {"trust": "promoted"})
        environ = {"XDG_DATA_HOME": str(tmp_path / name)}
        return open_store(url, wait_s=20.0, environ=environ, **how)

    results: list[Result] = []

    def tune(name: str, order: tuple[int, ...]) -> None:
        with machine(name, "contributor") as store:
            for key in order:
                settings = Settings(agree_wait_s=100.0)
                results.append(whet.tune(target(key), store=store, settings=settings))

    tuners = [
        threading.Thread(target=tune, args=(name, order))
        for name, order in (("tuner1", KEYS), ("tuner2", KEYS[::-1]))
    ]
    for tuner in tuners:
        tuner.start()
    for tuner in tuners:
        tuner.join()
    workloads = {key: target(key).workload() for key in KEYS}
    chosen = {result.run.workload.id: result.config for result in results}
    assert sorted(one.source for one in results) == ["stored"] * 3 + ["tuned"] * 3
    assert all(chosen[one.run.workload.id] == one.config for one in results)

    with machine("early", "reader", read_only=True) as store:
        assert [store.best(workload.id) for workload in workloads.values()] == [None] * 3
    with promotable(owner.replace(f"{USER}@", "promoter@")) as release:
        assert all(report.changed for report in promote(release, workloads.values()))

    serving = [machine(f"serving{n}", "reader", read_only=True) for n in range(10)]
    for outage in (False, True):
        if outage:
            own_postgres.kill()
        for store in serving:
            for workload in workloads.values():
                best = store.best(workload.id)
                assert best is not None
                assert best.config == chosen[workload.id]
    for store in serving:
        store.close()
