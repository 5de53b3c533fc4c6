"""A store may be anybody's: what it names is run only if it is a file of the user's, in a folder
that they trust, and it is said who named it."""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

import whet as package
from cli_runs import Whet
from plugin_package import install
from whet.core.miss import Miss
from whet.store import open_store
from whet.store.bundles.writing import write_bundle
from whet.targets.files import load_module
from whet.testing.samples import a_workload

KERNEL = """
import pathlib
import whet

pathlib.Path({ran!r}).touch()

def work(n, block):
    return sum(range(block))

work_4 = whet.function(work, {{"block": [2000, 10]}}, args=(4,), isolate=False)
"""


@pytest.fixture(autouse=True)
def _own_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """There once a recorded file was run."""
    return tmp_path / "ran"


def a_kernel(path: Path, ran: Path) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(KERNEL.format(ran=str(ran)))
    return path


def recorded(where: object, module: str = "") -> None:
    with package.open_store() as store:
        store.miss(Miss(a_workload(), f"{where}:work_4", module=module))


def tuned(whet: Whet, *words: str) -> str:
    done = whet("tune", "--missed", "-q", *words)
    assert done.code == 1
    return " ".join((done.out + done.err).split()).replace("- ", "-")


def test_a_file_elsewhere_is_not_run_and_the_remedy_is_told(
    whet: Whet, tmp_path: Path, ran: Path
) -> None:
    theirs = a_kernel(tmp_path / "theirs" / "k.py", ran)
    recorded(theirs)
    said = tuned(whet)
    assert not ran.exists()
    assert "add --root FOLDER" in said
    assert "whet tune FILE.py:NAME --missed" in said


@pytest.mark.parametrize("command", ["precompile", "verify"])
def test_nor_is_it_by_other_commands(whet: Whet, tmp_path: Path, ran: Path, command: str) -> None:
    pytest.importorskip("triton")
    recorded(a_kernel(tmp_path / "theirs" / "k.py", ran))
    done = whet(command, "--missed", *(["--arch", "sm_90"] if command == "precompile" else []))
    assert done.code != 0
    assert not ran.exists()


def test_a_link_to_a_file_elsewhere_is_that_file(whet: Whet, tmp_path: Path, ran: Path) -> None:
    Path("link.py").symlink_to(a_kernel(tmp_path / "theirs" / "k.py", ran))
    recorded(Path("link.py").absolute())
    assert "add --root FOLDER" in tuned(whet)
    assert not ran.exists()


def test_a_file_below_a_root_is_run(whet: Whet, tmp_path: Path, ran: Path) -> None:
    recorded(a_kernel(tmp_path / "theirs" / "k.py", ran))
    tuned(whet, "--root", str(tmp_path / "theirs"))
    assert ran.exists()


def test_with_a_root_this_folder_is_none(whet: Whet, tmp_path: Path, ran: Path) -> None:
    (tmp_path / "trusted").mkdir()
    recorded(a_kernel(Path("k.py").absolute(), ran))
    assert "no --root" in tuned(whet, "--root", str(tmp_path / "trusted"))
    assert not ran.exists()


def test_a_root_that_is_no_folder_is_an_error(whet: Whet, ran: Path) -> None:
    recorded(a_kernel(Path("k.py").absolute(), ran))
    done = whet("tune", "--missed", "--root", "nowhere")
    assert (done.code, "--root nowhere is not" in done.err) == (2, True)


@pytest.mark.parametrize("mode", [0o664, 0o646])
@pytest.mark.parametrize("what", ["in", "in/k.py"])
def test_what_others_may_write_is_not_run(
    whet: Whet, ran: Path, what: str, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(a_kernel(Path("in/k.py").absolute(), ran))
    Path(what).chmod(mode | (0o111 if what == "in" else 0))
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("staff", "", gid, [])))
    said = "".join(tuned(whet).split())  # a long path is folded anywhere
    assert f"othersmaywriteto{Path(what).absolute()}" in said
    assert not ran.exists()


@pytest.mark.parametrize("members", [[], ["ann"]])
def test_a_group_of_the_user_alone_is_not_others(
    whet: Whet, ran: Path, members: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As systems make one for each user, whose files are then 0664."""
    own = pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((own, "", gid, members)))
    recorded(a_kernel(Path("k.py").absolute(), ran))
    Path("k.py").chmod(0o664)
    said = tuned(whet)
    assert ran.exists() == (not members)
    assert ("others may write" in said) == bool(members)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_file_is_not_run(whet: Whet, ran: Path) -> None:
    recorded(a_kernel(Path("k.py").absolute(), ran))
    os.chown("k.py", 54_321, -1)
    assert "user 54321" in tuned(whet)
    assert not ran.exists()


def test_a_module_elsewhere_is_not_imported(
    whet: Whet, tmp_path: Path, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_kernel(tmp_path / "site" / "named_by_a_record.py", ran)
    monkeypatch.syspath_prepend(tmp_path / "site")
    (tmp_path / "trusted").mkdir()
    recorded("named_by_a_record.py", module="named_by_a_record")
    tuned(whet, "--root", str(tmp_path / "trusted"))
    assert not ran.exists()
    tuned(whet)
    assert ran.exists()


def test_a_forged_bundle_runs_nothing_either(whet: Whet, tmp_path: Path, ran: Path) -> None:
    theirs = a_kernel(tmp_path / "theirs" / "k.py", ran)
    bundle = tmp_path / "forged.whet"
    with open_store(tmp_path / "other.db") as other:
        other.miss(Miss(a_workload(), f"{theirs}:work_4"))
        write_bundle(bundle, other, missed=True)
    assert whet("store", "merge", str(bundle)).code == 0
    with package.open_store() as store:  # as a forger would have written it
        [miss] = store.missed()
        store.forget_missed([miss.workload.id])
        store.miss(replace(miss, where=f"{theirs}:work_4"))
    tuned(whet)
    assert not ran.exists()


def test_a_record_has_no_package_make_a_target(
    whet: Whet, tmp_path: Path, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"import pathlib\ndef sh(text):\n    pathlib.Path({str(ran)!r}).touch()\n"
    points = {"whet.targets": {"sh": "sh_target:sh"}}
    monkeypatch.syspath_prepend(install(tmp_path / "site", points, {"sh_target": module}))
    for number, where in enumerate(("sh:touch x", "sh:x.py:name", "sh:name")):
        with package.open_store() as store:
            store.miss(Miss(a_workload(key={"M": number}), where))
    said = tuned(whet)
    assert "only FILE.py:NAME" in said
    assert not ran.exists()


def test_the_file_and_the_store_are_said_before_it_is_run(
    whet: Whet, tmp_path: Path, ran: Path
) -> None:
    file = a_kernel(Path("k.py").absolute(), ran)
    file.write_text(f"print('it runs')\n{file.read_text()}")
    package.choose(load_module(file).work_4, mode="record")
    done = whet("tune", "--missed", "-q")
    assert done.code == 0
    told = f"whet: running {file}, recorded by store {tmp_path / 'store.db'}\n"
    assert done.err.startswith(f"{told}it runs")
    assert done.err.count(told) == 1


@pytest.mark.medium
def test_a_shared_store_knows_who_recorded_it(whet: Whet, postgres_url: str, ran: Path) -> None:
    where = f"{a_kernel(Path('k.py').absolute(), ran)}:work_4"
    with open_store(postgres_url, direct=True) as store:
        store.miss(Miss(a_workload(), where))
        [writer] = store.miss_writers().values()  # type: ignore[attr-defined]
    done = whet("tune", "--missed", "-q", "--store", postgres_url)
    assert f"by {writer}, in store postgresql://" in done.err
    assert writer.role in done.err
