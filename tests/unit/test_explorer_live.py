"""A running explorer, as a process of its own, over a store that others write."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from explorer_samples import decoded, fill, trial, workload
from explorer_server import running
from whet.store import SqliteStore

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytestmark = pytest.mark.medium


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def _events(url: str) -> Iterator[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/api/live", timeout=30) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
            elif line.startswith(b": the explorer is watching"):
                yield {}


def test_a_trial_of_another_process_is_told_and_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SqliteStore(path) as store:
        run = fill(store)
        with running(path) as url:
            events = _events(url)
            assert next(events) == {}
            id = run.workload.id
            header, _ = decoded(_get(f"{url}/api/workloads/{id}/columns"))
            assert header["rows"] == 32
            store.append([trial(run.workload, {"BM": 128, "BN": 96, "num_warps": 4}, 50.0)])
            told = next(events)
            assert (told["workload"], told["rows_total"]) == (id, 33)
            header, arrays = decoded(_get(f"{url}/api/workloads/{id}/columns?from=32"))
            assert header["rows"] == 1
            assert arrays["median_ns"][0] == pytest.approx(49.0)
            events.close()  # type: ignore[attr-defined]


def test_a_store_that_does_not_exist_yet_is_empty_and_then_is_not(tmp_path: Path) -> None:
    path = tmp_path / "later.db"
    with running(path) as url:
        assert json.loads(_get(f"{url}/api/workloads")) == []
        assert json.loads(_get(f"{url}/api/about"))["store"] == str(path)
        assert not path.exists()
        events = _events(url)
        next(events)
        with SqliteStore(path) as store:
            run = fill(store)
        assert next(events)["workload"] in (None, run.workload.id)
        assert [one["id"] for one in json.loads(_get(f"{url}/api/workloads"))] == [run.workload.id]
        events.close()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_it_goes_on_while_a_process_writes_without_pause(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SqliteStore(path) as store:
        of = workload()
        store.put_workload(of)
        with running(path) as url:
            rows = 0
            for number in range(30):
                store.append([trial(of, {"a": number, "b": n}, 100.0 + n) for n in range(20)])
                header, _ = decoded(_get(f"{url}/api/workloads/{of.id}/columns?from={rows}"))
                rows += header["rows"]
                assert rows == 20 * (number + 1)
                assert header["complete"]


@pytest.mark.slow
def test_ctrl_c_ends_it_without_a_word_too_many() -> None:
    command = [sys.executable, "-m", "whet", "explore", "--sample", "--no-open", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("the explorer is at http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert out == ""
    assert err == "whet: Ctrl-C stops it\n"
    assert process.returncode in (0, 130)


@pytest.mark.slow
def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with running(sample=True) as url:
        port = url.rpartition(":")[2]
        command = [sys.executable, "-m", "whet", "explore", "--sample", "--no-open", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"127.0.0.1, port {port}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_bound_elsewhere_it_prints_a_token_and_says_so(tmp_path: Path) -> None:
    with running(sample=True, arguments=["--host", "0.0.0.0"]) as url:
        base, _, token = url.partition("/?token=")
        assert len(token) > 16
        base = base.replace("0.0.0.0", "127.0.0.1")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            _get(f"{base}/api/about")
        assert json.loads(_get(f"{base}/api/about?token={token}"))["sample"] is True
