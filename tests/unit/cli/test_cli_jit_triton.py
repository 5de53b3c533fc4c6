"""`whet jit`: what was recorded, and why two specializations differ."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet

pytest.importorskip("triton")

from whet.targets.triton.jit.records import Records
from whet.targets.triton.jit.specialization import JitArgument, Met, Specialization
from whet.targets.triton.jit.variants import valued


def scale(n: int, **more: Any) -> Specialization:
    return Specialization(
        "app.kernels:scale",
        (
            JitArgument("x", "*fp16", "D"),
            valued(JitArgument("n", "i32", ""), n),
            JitArgument("BLOCK", "constexpr", 64, None, "constexpr"),
        ),
        (("num_warps", 4),),
        ("cuda", 90, 32),
        "3.9.0",
        place="/srv/app/kernels.py:12",
        binary="ab" * 20,
        met=Met(1e9, "/srv/app/serve.py:41 in step", seconds=1.25),
        **more,
    )


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    found = Records.beside(None)
    found.add([scale(8), scale(1)])
    return found


def test_a_list_shows_what_tells_them_apart(whet: Whet, records: Records) -> None:
    done = whet("jit")
    assert done.code == 0
    assert done.out.splitlines() == [
        "id            kernel  special    took  status",
        f"{scale(8).id}  scale   n=i32    1.25 s  recorded",
        f"{scale(1).id}  scale   n=1      1.25 s  recorded",
        "",
        "2 specializations of 1 kernel",
    ]


def test_what_is_reachable_is_listed_and_not_recorded(whet: Whet, records: Records) -> None:
    answer = json.loads(whet("jit", "--reachable", "--most", "1", "--json").out)
    assert [one["met"]["derived"] for one in answer["specializations"]] == [False, False, True]
    assert answer["left"] == 1
    assert len(records.all()) == 2


def test_a_difference_is_said_in_words(whet: Whet, records: Records) -> None:
    done = whet("jit", scale(8).id[:6], scale(1).id[:6])
    assert "  argument n: i32, " in done.out
    assert "16 (8) → == 1\n" in done.out


def test_an_explanation_says_who_called(whet: Whet, records: Records) -> None:
    done = whet("jit", scale(8).id)
    assert "/srv/app/serve.py:41 in step" in done.out
    assert "by 16  8" in done.out
    assert done.widest <= 80
    assert "argument n:" in whet("jit", "scale").out


def test_one_is_added_by_its_line(whet: Whet, records: Records) -> None:
    assert whet("jit", "scale", "--add", "n=32").code == 0
    added = records.all()[-1]
    assert added.id == scale(32).id
    assert added.met.derived
    assert not added.binary
    assert "recorded already" in whet("jit", "app.kernels:scale", "--add", "n=48").out


@pytest.mark.medium
def test_what_does_not_exist_is_named(whet: Whet, records: Records) -> None:
    unknown = whet("jit", "scael")
    assert unknown.code == 2
    assert "'scael'" in unknown.err
    assert "mean 'scale'?" in unknown.err
    assert "starts with 'zz'" in whet("jit", "zz", "zz").err
    records.add([replace(scale(8), kernel="app.kernels:other")])
    other = records.all()[-1].id
    assert "one kernel" in whet("jit", other, scale(8).id).err


def test_without_records_it_says_how_to_make_some(
    whet: Whet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "none.db"))
    done = whet("jit")
    assert done.code == 2
    assert "WHET_JIT=record" in done.err
    assert "WHET_JIT=record" in whet("pack", "x.whet", "--jit").err
    assert "--reachable needs --jit" in whet("pack", "x.whet", "--reachable").err


@pytest.mark.medium
@pytest.mark.parametrize("module", ["__main__", "named_by_a_record"])
def test_a_records_file_elsewhere_is_not_run(whet: Whet, tmp_path: Path, module: str) -> None:
    """Whoever may write beside a store could have named it."""
    theirs, ran = tmp_path / "theirs" / "named_by_a_record.py", tmp_path / "ran"
    theirs.parent.mkdir()
    theirs.write_text(f"import pathlib; pathlib.Path({str(ran)!r}).touch()")
    (here := tmp_path / "here").mkdir()
    one = replace(scale(8, why=""), kernel=f"{module}:only_there", place=f"{theirs}:1")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.setenv("WHET_STORE", str(tmp_path / "store.db"))
        Records.beside(None).add([one, replace(one.changed({}), options=(("num_warps", 8),))])
        refused = whet("pack", "x.whet", "--jit")
        assert not ran.exists()
        assert "add --root FOLDER" in refused.out
        patch.syspath_prepend(str(here))  # so that what is added to the path is taken off again
        whet("pack", "x.whet", "--jit", "--root", str(theirs.parent))
        assert ran.exists()
