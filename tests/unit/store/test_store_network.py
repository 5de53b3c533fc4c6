"""A store in a folder that machines share is not written, and read only where that is safe."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from whet.core.errors import StoreError
from whet.core.workload import Workload
from whet.store import SqliteStore, connecting, open_store, opening, unsent
from whet.store.connecting import network_filesystem
from whet.testing.samples import a_trial, a_workload
from whet.testing.store_kit_base import in_child

Mount = Callable[..., None]


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mount:
    """`mount(folder, "nfs4")`: the system then says so of that folder, as it would say it."""
    table = tmp_path / "mountinfo"
    table.write_text("27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n")
    monkeypatch.setattr(connecting, "MOUNTS", table)
    monkeypatch.setattr(connecting, "_found", {})
    monkeypatch.setattr(connecting, "_is_disk", lambda device: False)

    def mounted(folder: Path, kind: str, options: str = "rw") -> None:
        point = str(folder).replace(" ", r"\040")
        line = f"90 27 0:50 / {point} rw,relatime shared:7 - {kind} server:/x {options}\n"
        with table.open("a") as file:
            file.write(line)
        monkeypatch.setattr(connecting, "_found", {})

    return mounted


@pytest.fixture
def share(tmp_path: Path, mount: Mount) -> Path:
    folder = tmp_path / "share"
    folder.mkdir()
    return folder


def fill(path: Path) -> Workload:
    workload = a_workload()
    with SqliteStore(path) as store:
        store.put_workload(workload)
        store.append([a_trial(workload)])
    return workload


def test_a_folder_belongs_to_the_longest_mount_point_above_it(share: Path, mount: Mount) -> None:
    (share / "local").mkdir()
    mount(share, "nfs4")
    mount(share / "local", "xfs")
    assert network_filesystem(share) == "nfs4"
    assert network_filesystem(share / "local") == ""
    assert network_filesystem(share.parent) == ""


def test_a_folder_beside_a_mount_point_with_a_longer_name_is_local(
    share: Path, mount: Mount
) -> None:
    beside = share.with_name("share-of-mine")
    beside.mkdir()
    mount(share, "nfs")
    assert network_filesystem(beside) == ""


def test_of_two_mounts_in_one_place_the_later_counts(share: Path, mount: Mount) -> None:
    mount(share, "cifs")
    mount(share, "ext4")
    assert network_filesystem(share) == ""


def test_a_folder_that_is_yet_to_be_made_is_where_it_will_be(share: Path, mount: Mount) -> None:
    mount(share, "lustre")
    assert network_filesystem(share / "not" / "yet") == "lustre"


def test_a_mount_point_may_have_blanks_in_its_name(tmp_path: Path, mount: Mount) -> None:
    folder = tmp_path / "my share"
    folder.mkdir()
    mount(folder, "fuse.sshfs")
    assert network_filesystem(folder) == "fuse.sshfs"


def test_a_sandbox_that_serves_its_own_files_is_local(share: Path, mount: Mount) -> None:
    mount(share, "9p", "rw,trans=fd,dfltuid=0,cache=remote_revalidating,directfs")
    assert network_filesystem(share) == ""


def test_where_the_system_does_not_tell_a_folder_is_local(
    tmp_path: Path, mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "MOUNTS", tmp_path / "none")
    assert network_filesystem(tmp_path) == ""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "9p", "ceph", "lustre", "fuse.gcsfuse"])
def test_no_store_is_made_there_and_the_remedy_is_said(
    share: Path, mount: Mount, kind: str
) -> None:
    mount(share, kind)
    path = share / "deep" / "store.db"
    with pytest.raises(StoreError) as caught:
        open_store(path)
    message = str(caught.value)
    for part in (str(path), str(path.parent), f"({kind})", "store=", "WHET_STORE", "whet pack"):
        assert part in message
    assert os.listdir(share) == []


def test_a_store_that_is_there_is_not_opened_for_writing(share: Path, mount: Mount) -> None:
    path = share / "store.db"
    fill(path)
    mount(share, "nfs4")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"network file system \(nfs4\)"):
        open_store(path)
    assert path.read_bytes() == before
    assert os.listdir(share) == ["store.db"]


def test_a_link_on_a_local_disk_does_not_hide_the_network(
    share: Path, tmp_path: Path, mount: Mount
) -> None:
    link = tmp_path / "store.db"
    link.symlink_to(share / "store.db")
    mount(share, "nfs4")
    with pytest.raises(StoreError, match="network file system"):
        open_store(link)


def test_a_closed_store_can_be_read_there_and_nothing_is_left_beside_it(
    share: Path, mount: Mount
) -> None:
    path = share / "store.db"
    workload = fill(path)
    mount(share, "nfs4")
    with open_store(path, read_only=True) as store:
        assert store.read_only
        assert store.best(workload.id) is not None
        assert os.listdir(share) == ["store.db"]


def test_results_in_a_log_there_are_not_passed_over(share: Path, mount: Mount) -> None:
    path = share / "store.db"
    workload = fill(path)

    def append_and_leave_the_log() -> bool:
        SqliteStore(path).append([a_trial(workload, {"BM": 2})])
        os._exit(0)

    assert in_child(append_and_leave_the_log)
    mount(share, "nfs4")
    with pytest.raises(StoreError, match=r"\(nfs4\) and has results in store.db-wal.*copy both"):
        open_store(path, read_only=True)


def test_results_are_carried_from_there_by_a_merge(
    share: Path, tmp_path: Path, mount: Mount
) -> None:
    workload = fill(share / "store.db")
    mount(share, "nfs4")
    with (
        open_store(tmp_path / "mine.db") as mine,
        open_store(share / "store.db", read_only=True) as theirs,
    ):
        assert mine.merge(theirs).trials == 1
        assert mine.best(workload.id) is not None


def test_a_kernel_that_would_keep_its_results_there_runs_without_keeping_them(
    share: Path, mount: Mount
) -> None:
    from whet.engine.fallback.calls import opened
    from whet.engine.settings import Settings

    mount(share, "nfs4")
    settings = Settings(store=str(share / "store.db"))
    with (
        pytest.warns(RuntimeWarning, match=r"results will not be saved.*network file system"),
        opened(settings) as store,
    ):
        assert store.location == ":memory:"


class TestAHomeOnANetwork:
    """A store of a team, whose server is away: what the host keeps is all there is."""

    URL = "postgresql://nobody@127.0.0.1:1/none"

    @pytest.fixture
    def scratch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = tmp_path / "scratch"
        folder.mkdir()
        monkeypatch.setattr(connecting, "SCRATCH", (str(folder),))
        monkeypatch.setattr(opening, "_told", set())
        return folder

    @pytest.mark.medium
    def test_the_host_keeps_its_part_on_a_disk_of_its_own(
        self, share: Path, scratch: Path, mount: Mount, caplog: pytest.LogCaptureFixture
    ) -> None:
        mount(share, "nfs4")
        environ = {"XDG_DATA_HOME": str(share)}
        workload = a_workload()
        with caplog.at_level(logging.WARNING, "whet"):
            for n in (1, 2):
                with open_store(self.URL, environ=environ) as store:
                    store.put_workload(workload)
                    store.append([a_trial(workload, {"BM": n})])
                    assert len(store.trials(workload.id)) == n
        own = scratch / f"whet-{os.getuid()}"
        assert f"is in {own / 'shared'}" in caplog.text
        assert caplog.text.count("(nfs4)") == 1
        assert own.stat().st_mode & 0o777 == 0o700
        assert unsent(self.URL, environ=environ).waiting == 4
        assert os.listdir(share) == []

    def test_the_users_own_folder_for_scratch_comes_first(
        self, share: Path, scratch: Path, tmp_path: Path, mount: Mount
    ) -> None:
        mount(share, "nfs4")
        environ = {"XDG_DATA_HOME": str(share), "TMPDIR": str(tmp_path)}
        with open_store(self.URL, environ=environ) as store:
            assert store.lock_folder is not None
            assert store.lock_folder.is_relative_to(tmp_path / f"whet-{os.getuid()}")
        assert os.listdir(scratch) == []

    @pytest.mark.parametrize("what", ["link", "open to all", "file", "network"])
    def test_a_folder_that_may_be_another_s_is_not_used(
        self, share: Path, scratch: Path, tmp_path: Path, mount: Mount, what: str
    ) -> None:
        own = scratch / f"whet-{os.getuid()}"
        if what == "link":
            (tmp_path / "elsewhere").mkdir(mode=0o700)
            own.symlink_to(tmp_path / "elsewhere")
        elif what == "open to all":
            own.mkdir()
            own.chmod(0o777)
        elif what == "file":
            own.touch()
        else:
            mount(scratch, "nfs4")
        mount(share, "nfs4")
        with pytest.raises(StoreError, match=r"on a network.*set XDG_DATA_HOME to a local"):
            open_store(self.URL, environ={"XDG_DATA_HOME": str(share)})
