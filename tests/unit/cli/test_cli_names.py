"""Results are found by the name that was typed, and kernels of one name are told apart."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, refused
from whet.cli.arguments.reading import named, place_text, source_labels
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.core.workload import Origin, Workload
from whet.store import open_store
from whet.testing.samples import a_run, a_trial, a_workload

NORM = """
import whet

def root_sum(block):
    return sum(range(0, 2000, block))

norm = whet.function(root_sum, {"block": [1, 2]})

def factory():
    def inner(block):
        return sum(range(0, 3000, block))
    return whet.function(inner, {"block": [1, 2]})
"""


@pytest.fixture
def tuned(whet: Whet, tmp_path: Path) -> str:
    (tmp_path / "norm.py").write_text(NORM)
    assert whet("tune", "norm.py:norm", "--store", "s.db", "-q").code == 0
    return "s.db"


@pytest.mark.medium
@pytest.mark.parametrize("name", ["norm", "root_sum"])
@pytest.mark.parametrize("command", ["tune", "verify"])
def test_what_the_store_knows_is_measured_by_its_name(
    whet: Whet, tuned: str, command: str, name: str
) -> None:
    ran = whet(command, name, "--store", tuned)
    assert ran.code in (0, 1), ran.err  # a pick may be slower by now
    assert "root_sum()" in ran.out


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("/elsewhere/mine.py:norm", id="not there"),
        pytest.param("{above}/theirs.py:norm", id="above this folder"),
        pytest.param("{above}/here/../theirs.py:norm", id="above, in a roundabout way"),
        pytest.param("{above}/here/link.py:norm", id="a link to one above"),
        pytest.param("{above}/here/norm.txt:norm", id="no Python file"),
    ],
)
def test_a_store_runs_no_file_from_elsewhere(
    whet: Whet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (here := tmp_path / "here").mkdir()
    theirs = tmp_path / "theirs.py"
    theirs.write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()")
    (here / "link.py").symlink_to(theirs)
    (here / "norm.txt").write_text(theirs.read_text())
    place = place.format(above=tmp_path)
    with open_store(here / "s.db") as store:
        store.put_workload(replace(a_workload(), origin=Origin("c", places=(place,))))
    monkeypatch.chdir(here)
    ran = whet("tune", "norm", "--store", "s.db")
    assert ran.code == 2
    assert f"if you trust it, use whet tune {place}" in ran.err
    assert not (tmp_path / "ran").exists()


def give_away(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes it another user's; who may not do that becomes another one."""
    if os.geteuid() == 0:
        os.chown(file, 54_321, -1)
    else:
        monkeypatch.setattr("os.geteuid", lambda: os.stat(file).st_uid + 1)


def test_a_store_runs_no_file_of_another_user(
    whet: Whet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "norm.py").write_text(NORM)
    place = f"{tmp_path / 'norm.py'}:norm"
    with open_store(tmp_path / "s.db") as store:
        store.put_workload(replace(a_workload(), origin=Origin("c", places=(place,))))
    give_away(tmp_path / "norm.py", monkeypatch)
    assert f"use whet tune {place}" in refused(whet("tune", "norm", "--store", "s.db"))


def test_a_name_of_two_files_is_not_guessed(whet: Whet, tmp_path: Path) -> None:
    with open_store(tmp_path / "s.db") as store:
        for name in ("one", "two"):
            (tmp_path / f"{name}.py").write_text(NORM)
            place = f"{tmp_path / name}.py:norm"
            workload = replace(a_workload(), fingerprint=name, origin=Origin("c", places=(place,)))
            store.put_workload(workload)
    assert "one.py:norm and two.py:norm" in refused(whet("verify", "norm", "--store", "s.db"))


@pytest.mark.medium
def test_every_command_takes_the_name_that_was_tuned(whet: Whet, tuned: str) -> None:
    for command in (
        ("best", "norm"),
        ("best", "norm.py:norm"),
        ("best", "norm.py:root_sum"),
        ("best", "norm.py"),
        ("show", "trials", "norm"),
        ("show", "cost", "norm"),
        ("export", "python", "norm"),
        ("lab", "record", "norm", "--out", "t.whet.json.gz"),
        ("pack", "p.whet", "--kernel", "norm"),
        ("store", "gc", "--kernel", "norm", "--dry-run"),
    ):
        ran = whet(*command, "--store", tuned)
        assert ran.code == 0, ran.err
        assert "root_sum" in ran.out or command[0] in ("pack", "store")
    assert "1 workload" in whet("store", "gc", "--kernel", "norm", "--store", tuned).out


@pytest.mark.medium
def test_diff_takes_it_too(whet: Whet, tuned: str) -> None:
    assert "root_sum()" in whet("store", "diff", tuned, tuned, "norm").out
    assert "mean 'norm'" in whet("store", "diff", tuned, tuned, "nrom").err


@pytest.mark.medium
def test_what_a_function_made_is_found_by_that_functions_name(whet: Whet, tuned: str) -> None:
    whet("tune", "norm.py:factory", "--store", tuned, "-q")
    assert whet("best", "factory", "--store", tuned).out.startswith("inner()")


@pytest.mark.medium
def test_a_name_that_is_not_known_gets_the_known_ones(whet: Whet, tuned: str) -> None:
    assert "mean 'norm'? valid: root_sum, norm" in refused(whet("best", "nrom", "--store", tuned))


def an_f(place: str, fingerprint: str, **changes: Any) -> Workload:
    origin = Origin(fingerprint, places=(place,) if place else ())
    workload = a_workload(kernel="f", key={}, fingerprint=fingerprint, **changes)
    return replace(workload, origin=origin)


ONE, TWO = an_f("/x/one/k.py:t", "aaaa"), an_f("/x/two/k.py:t", "bbbb")


@pytest.fixture
def two() -> str:
    with open_store("two.db") as store:
        for workload in (ONE, TWO):
            store.save_run(a_run(workload, {"BM": 64}))
            store.append(
                [a_trial(workload), a_trial(workload, {"BM": 1}, status=Status.BUILD_ERROR)]
            )
    return "two.db"


def test_two_of_one_name_are_told_apart_by_their_files(whet: Whet, two: str) -> None:
    for command in (("best", "f"), ("store", "stats", "--list")):
        lines = whet(*command, "--store", two).out.splitlines()
        assert {line.split()[2] for line in lines if " f() " in line} == {
            "one/k.py:t",
            "two/k.py:t",
        }


@pytest.mark.medium
def test_one_of_them_is_chosen_by_its_file(whet: Whet, two: str) -> None:
    for name in ("two/k.py:f", "two/k.py:t", "two/k.py", "/x/two/k.py:f"):
        assert f"id       {TWO.id}" in whet("best", name, "--store", two).out
    assert "'three/k.py:f'" in whet("best", "three/k.py:f", "--store", two).err


@pytest.mark.medium
def test_only_the_file_that_was_named_is_packed_or_removed(whet: Whet, two: str) -> None:
    assert "1 workload" in whet("pack", "p.whet", "--kernel", "one/k.py:f", "--store", two).out
    assert "removed 1 workload" in whet("store", "gc", "--kernel", "one/k.py:f", "--store", two).out
    with open_store(two) as store:
        assert [one.workload.id for one in store.workloads()] == [TWO.id]


def test_an_export_takes_one_of_them_and_names_the_other(whet: Whet, two: str) -> None:
    ran = whet("export", "python", "f", "--store", two)
    assert ran.code == 0
    assert "export /x/" in ran.err or "older result" in ran.err


def test_a_file_that_is_there_means_only_itself(tmp_path: Path) -> None:
    (tmp_path / "k.py").touch()
    assert named("k.py:f", [ONE, TWO]) == set()
    assert named("two/k.py:f", [ONE, TWO]) == {TWO.id}


def test_a_place_is_shown_with_as_many_folders_as_tell_it_apart() -> None:
    assert place_text("/a/b/k.py:f") == "k.py:f"
    assert place_text("/a/b/k.py:f", ["/a/c/k.py:f", "/a/b/k.py:g"]) == "b/k.py:f"


def test_a_source_is_labelled_by_what_it_captured_or_by_its_age() -> None:
    def source(code: str, fingerprint: str, **captured: str) -> Workload:
        origin = Origin(code, FrozenMap(captured))
        return replace(a_workload(fingerprint=fingerprint), origin=origin)

    here = [source("c", "1", M="256", N="8"), source("c", "2", M="512", N="8")]
    assert list(source_labels(here).values()) == ["M=256", "M=512"]
    edited = [source("new", "1"), source("old", "2")]
    assert list(source_labels(edited).values()) == ["latest source", "earlier source 2"]
    unknown = [a_workload(fingerprint="1"), a_workload(fingerprint="2")]
    assert list(source_labels(unknown).values()) == ["latest source", "earlier source 2"]
    assert source_labels([a_workload(), a_workload(key={"M": 1})]) == {}


COUNTED = """
import whet

def g(block, n):
    return sum(range(0, n, block))

SIZES = {"block": [1, 2, 3, 4, 5, 6, 0]}
a = whet.function(g, SIZES, kwargs={"n": 2000}, key={"n": 2000})
b = whet.function(g, SIZES, kwargs={"n": 3000}, key={"n": 3000})
"""


@pytest.mark.medium
def test_every_command_counts_the_same(whet: Whet, tmp_path: Path) -> None:
    """After a run that was cut short, one that went on, and another key; one config fails."""
    (tmp_path / "counted.py").write_text(COUNTED)
    whet("tune", "counted.py:a", "--store", "c.db", "-q", "--budget", "2trials")
    for name in ("a", "b"):
        assert whet("tune", f"counted.py:{name}", "--store", "c.db", "-q").code == 0

    def said(*command: str) -> str:
        return str(whet(*command, "--store", "c.db").out)

    assert "7 of 7 configs" in said("best", "counted.py:a")
    assert ", 7 configs\n" in said("show", "trials", "counted.py:a")
    heading = said("show", "cost", "counted.py:a").splitlines()[2]
    tried, known = (int(part.split()[0]) for part in heading.partition(": ")[2].split(", ")[:2])
    assert (tried + known, "already known" in heading) == (7, True)
    exported = said("export", "python", "g")
    assert " of 6 that" in exported
    assert "; 7 were tried" in exported
    assert f"{tried + 7} trials of 7 configs, {known} already known" in said("show", "cost", "g")


CAPTURED = """
import whet

def make(M):
    def run(block):
        return M // block
    return whet.function(run, {"block": [1, 2]}, key={"N": 8})

m1, m2 = make(256), make(512)
"""


@pytest.mark.medium
def test_what_splits_a_kernel_is_named_by_tune_best_and_export(whet: Whet, tmp_path: Path) -> None:
    (tmp_path / "factory.py").write_text(CAPTURED)
    assert "captured" not in whet("tune", "factory.py:m1", "--store", "c.db").out
    ran = whet("tune", "factory.py:m2", "--store", "c.db")
    for text in (ran.out, ran.err):
        assert "captures M=512 (was 256)" in " ".join(text.split())
    assert [line.split()[2] for line in whet("best", "run", "--store", "c.db").out.splitlines()[1:]]
    ran = whet("export", "python", "run", "--store", "c.db")
    assert "not exported: 1 key (M=256 N=8)" in ran.err
    assert "put M in key=" in ran.err


@pytest.mark.medium
def test_what_the_key_claims_is_exported_whole(whet: Whet, tmp_path: Path) -> None:
    (tmp_path / "factory.py").write_text(CAPTURED.replace('{"N": 8}', '{"M": M}'))
    for name in ("m1", "m2"):
        whet("tune", f"factory.py:{name}", "--store", "c.db", "-q")
    ran = whet("export", "python", "run", "--store", "c.db")
    assert "keys:       2; M 256 to 512" in ran.out
    assert ran.err == ""
