"""Failures of one host and what another makes of them, in a store that they share."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.core.run import Run
from whet.store import Store, open_store
from whet.store.bundles.bundle import open_bundle
from whet.store.bundles.writing import write_bundle
from whet.testing.samples import a_run, a_trial, a_workload

pytestmark = pytest.mark.medium


class Hosts:
    """`hosts.tune("node7", works=False)`: as on a host that may lack what all configs need."""

    def __init__(self, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._url, self._folder, self._monkeypatch = url, folder, monkeypatch
        self._needed = folder / "needed"
        self.target = whet.function(self._run, {"a": [1, 2]}, name="k", isolate=False)

    def _run(self, a: int) -> None:
        self._needed.read_bytes()

    def store(self, host: str) -> Store:
        return open_store(
            self._url, wait_s=20.0, environ={"XDG_DATA_HOME": str(self._folder / host)}
        )

    def tune(self, host: str, *, works: bool) -> Any:
        self._monkeypatch.setattr(platform, "node", lambda: host)
        self._needed.unlink(missing_ok=True)
        if works:
            self._needed.write_bytes(b"")
        with self.store(host) as store:
            return whet.tune(self.target, store=store)

    def runs(self, host: str) -> list[Run]:
        with self.store(host) as store:
            return store.runs(self.target.workload().id)


@pytest.fixture(params=["postgresql", "sqlite"])
def hosts(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    server = request.param == "postgresql"
    url = request.getfixturevalue("postgres_url") if server else str(tmp_path / "shared.db")
    return Hosts(url, tmp_path, monkeypatch)


def test_what_failed_on_a_sick_host_is_tried_again_on_a_healthy_one(hosts: Hosts) -> None:
    with pytest.raises(whet.TuningFailedError, match="2 run_error"):
        hosts.tune("sick", works=False)
    assert hosts.tune("healthy", works=True).statuses["ok"] >= 1
    assert hosts.tune("sick", works=False).source == "stored"


def test_each_host_tries_once_and_then_believes_what_it_saw(hosts: Hosts) -> None:
    for host in ("one", "two"):
        with pytest.raises(whet.TuningFailedError, match=r"works: 2 run_error"):
            hosts.tune(host, works=False)
    for host in ("one", "two"):
        with pytest.raises(whet.TuningFailedError) as caught:
            hosts.tune(host, works=True)
        assert "@two): 2 run_error" in str(caught.value)
        assert "whet store gc --kernel k" in str(caught.value)
    assert [run.trials for run in hosts.runs("one")] == [0, 0, 2, 2]


def test_who_ran_it_is_kept_and_no_part_of_what_it_is() -> None:
    run = a_run(a_workload(), writer="ann@node7")
    assert run.host == "node7"
    assert Run.from_json(run.to_json()).writer == "ann@node7"
    older = {name: value for name, value in run.to_json().items() if name != "writer"}
    assert Run.from_json(older) == run


def test_a_bundle_does_not_tell_who_ran_it(tmp_path: Path) -> None:
    workload, bundle = a_workload(), tmp_path / "b.whet"
    trial = a_trial(workload)
    with open_store(str(tmp_path / "s.db")) as store:
        store.put_workload(workload)
        store.append([trial])
        store.save_run(a_run(workload, trial.config, writer="ann@node7"))
        write_bundle(bundle, store)
    assert [run.writer for run in open_bundle(bundle).store.runs(workload.id)] == [""]
