"""Stores of other packages, by their scheme: nothing needs them to be a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plugin_package import install
from whet.cli.app import main
from whet.core.errors import UsageError
from whet.core.plugins import PluginError
from whet.store import is_missing, lock_folder, open_if_there, open_store, store_place
from whet.testing.samples import a_trial, a_workload

MODULE = """
from whet.core.errors import StoreError
from whet.store import MemoryStore

OPEN = {}

class Room(MemoryStore):
    "Kept by name for the life of the process; it has no path, no locks and no models."

    def __init__(self, url):
        super().__init__()
        self._url = url

    @property
    def location(self):
        return self._url

    def close(self):
        pass

def opened(url, *, read_only):
    if url.endswith("closed"):
        raise StoreError(f"{url} is closed on Sundays; come back on Monday")
    return OPEN.setdefault(url, Room(url))

class Half:
    def __init__(self, url, *, read_only):
        self.location = url

def failing(url, read_only):
    raise OSError("no route to host")
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"room": "room_store:opened", "half": "room_store:Half", "far": "room_store:failing"}
    folder = install(tmp_path / "site", {"whet.stores": points}, {"room_store": MODULE})
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)


def test_the_scheme_says_whose_it_is() -> None:
    workload = a_workload()
    with open_store("room://a") as store:
        store.put_workload(workload)
        store.append([a_trial(workload)])
    with open_store(environ={"WHET_STORE": "ROOM://a"}) as other:
        assert other.location == "ROOM://a"
    with open_if_there("room://a") as again:
        assert len(again.trials(workload.id)) == 1


def test_it_is_never_asked_for_a_path() -> None:
    assert store_place("room://a") == "room://a"
    assert lock_folder("room://a") is None
    assert not is_missing("room://a")


def test_a_near_miss_lists_the_schemes_of_installed_packages() -> None:
    with pytest.raises(UsageError, match=r"'rom://a' is not valid; use a path, .*room://"):
        open_store("rom://a")


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("half://a", "it made 'Half', which is not a Store: no append, best, close"),
        ("far://a", "OSError: no route to host"),
    ],
)
def test_a_broken_one_is_refused_in_one_line(where: str, why: str) -> None:
    scheme = where.partition(":")[0]
    with pytest.raises(PluginError) as caught:
        open_store(where)
    assert str(caught.value).endswith(f" '{scheme}' of package some-parts: {why}")


def test_what_it_says_itself_is_what_a_person_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["best", "--store", "room://closed"]) == 1
    assert capsys.readouterr().err == (
        "whet: room://closed is closed on Sundays; come back on Monday\n"
    )


KERNEL = """
import whet
def work(n):
    return sum(range(n))
sums = whet.function(work, {"n": [4000, 100]}, name="sums")
"""


@pytest.mark.medium
def test_every_command_works_on_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    place = ["--store", "room://shared"]
    assert main(["tune", "kernel.py:sums", "-q", *place]) == 0
    assert "saved in room://shared" in capsys.readouterr().out
    for command in (
        ["best", "sums"],
        ["show", "trials", "sums"],
        ["show", "cost", "sums"],
        ["store", "stats", "--list"],
    ):
        assert main([*command, *place]) == 0, command
        assert "sums" in capsys.readouterr().out, command
    assert main(["store", "merge", "room://shared", "--store", "copy.db"]) == 0
    assert main(["pack", "out.whet", *place]) == 0
    assert main(["store", "merge", "out.whet", "--store", "room://other"]) == 0
    assert main(["store", "diff", "room://shared", "room://other"]) == 0
    assert main(["verify", "kernel.py:sums", *place]) in (0, 1)
    assert main(["store", "gc", "--older-than", "0s", *place]) == 0
    assert main(["tune", "kernel.py:sums", "-q", *place]) == 0
    made = {"copy.db", "out.whet"}
    assert set(os.listdir(tmp_path)) - {"__pycache__"} == {"kernel.py", "site", *made}


def test_only_a_store_that_is_a_file_has_a_folder_for_locks(tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db") as store:
        assert store.lock_folder == lock_folder(tmp_path / "store.db") == tmp_path / "locks"
    with open_store("room://a") as store:
        assert store.lock_folder is None
