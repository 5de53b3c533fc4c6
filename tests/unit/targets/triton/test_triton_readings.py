"""What one process has read of a kernel's source, the next one need not read again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("triton")

from triton_kernels import copy
from whet.core.files import cache_folder
from whet.targets.triton.compiler import readings, source
from whet.targets.triton.compiler.readings import ReadSource, remembered

READING = ReadSource("FunctionDef(…)", frozenset({"tl.load", "BLOCK"}), frozenset({"KNOWN"}))


def unread(text: str) -> ReadSource:
    raise AssertionError("this was read before")


def folder() -> Path:
    return Path(cache_folder(readings.FOLDER))


def remember(text: str = "def f(): pass", reader: str = __file__) -> Path:
    before = set(folder().glob("*"))
    assert remembered(text, reader, lambda text: READING) == READING
    [new] = set(folder().glob("*")) - before
    return new


def test_what_was_read_is_not_read_again() -> None:
    remember()
    assert remembered("def f(): pass", __file__, unread) == READING


def test_another_source_is_read() -> None:
    remember()
    other = READING._replace(text="other")
    assert remembered("def g(): pass", __file__, lambda text: other) == other


def test_what_another_version_of_the_reader_has_left_is_not_taken(tmp_path: Path) -> None:
    reader = tmp_path / "reader.py"
    reader.write_text("one")
    remember(reader=str(reader))
    reader.write_text("another")
    readings._versions.cache_clear()  # as in a new process
    remember(reader=str(reader))


@pytest.mark.parametrize("damage", [b"", b"{}", None])
def test_a_damaged_file_is_replaced(damage: bytes | None) -> None:
    file = remember()
    good = file.read_bytes()
    file.write_bytes(good[:-3] if damage is None else damage)
    assert remembered("def f(): pass", __file__, lambda text: READING) == READING
    assert file.read_bytes() == good


def test_a_file_of_another_source_is_not_believed() -> None:
    file, other = remember(), remember("def g(): pass")
    other.write_bytes(file.read_bytes())
    own = READING._replace(text="own")
    assert remembered("def g(): pass", __file__, lambda text: own) == own


def test_a_file_that_others_may_write_is_not_believed() -> None:
    remember().chmod(0o666)
    own = READING._replace(text="own")
    assert remembered("def f(): pass", __file__, lambda text: own) == own


def test_without_a_folder_everything_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        assert remembered("def f(): pass", __file__, lambda text: READING) == READING


def test_the_folder_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "_MOST_FILES", 4)
    for number in range(5):
        file = remember(f"def f{number}(): pass")
        os.utime(file, ns=(number, number))
    assert len(list(folder().iterdir())) == 2
    assert remembered("def f4(): pass", __file__, unread) == READING


def test_a_fingerprint_is_the_same_from_a_remembered_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source._read.cache_clear()
    first = source.fingerprint(copy)
    assert list(folder().iterdir())
    source._read.cache_clear()
    monkeypatch.setattr(source, "_parsed", unread)
    assert source.fingerprint(copy) == first
